import { request } from './client';
import type { Kind } from './kinds';
import { isRecord } from './types';

/** What the server says about the fields of its kinds, for completion while writing YAML. */

export interface Schema {
  $ref?: string;
  type?: string;
  description?: string;
  enum?: string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  allOf?: Schema[];
  default?: unknown;
  'x-kubernetes-group-version-kind'?: { group: string; version: string; kind: string }[];
}

export interface SchemaSet {
  root: Schema;
  all: Record<string, Schema>;
}

const known = new Map<string, Promise<Record<string, Schema>>>();

export async function schemaOf(kind: Kind): Promise<SchemaSet | null> {
  const path = kind.group ? `/openapi/v3/apis/${kind.group}/${kind.version}` : `/openapi/v3/api/${kind.version}`;
  let loading = known.get(path);
  if (!loading) {
    loading = request<{ components?: { schemas?: Record<string, Schema> } }>('GET', path).then((document) => document.components?.schemas ?? {});
    known.set(path, loading);
    loading.catch(() => known.delete(path));
  }
  const all = await loading;
  const root = Object.values(all).find((schema) => schema['x-kubernetes-group-version-kind']?.some((gvk) => gvk.kind === kind.kind && gvk.group === kind.group && gvk.version === kind.version));
  return root ? { root, all } : null;
}

/** Follows references, also those that are wrapped in `allOf` to carry a description. */
export function resolve(schema: Schema | undefined, all: Record<string, Schema>): Schema | undefined {
  let current = schema;
  for (let depth = 0; current && depth < 20; depth += 1) {
    const reference = current.$ref ?? current.allOf?.[0]?.$ref;
    if (!reference || current.properties) return current;
    const target: Schema | undefined = all[reference.replace('#/components/schemas/', '')];
    if (!target) return current;
    current = current.description ? { ...target, description: current.description } : target;
  }
  return current;
}

/** The schema at a path of field names, where `[]` is an element of a list. */
export function schemaAt(set: SchemaSet, path: readonly string[]): Schema | undefined {
  let current = resolve(set.root, set.all);
  for (const step of path) {
    if (!current) return undefined;
    if (step === '[]') current = resolve(current.items, set.all);
    else if (current.properties?.[step]) current = resolve(current.properties[step], set.all);
    else if (isRecord(current.additionalProperties)) current = resolve(current.additionalProperties as Schema, set.all);
    else return undefined;
  }
  return current;
}
