import { parseDocument, stringify } from 'yaml';
import type { KubeObject } from '@/api/types';
import { isRecord } from '@/api/types';

/** An object as people write it: the fields in the usual order, without what only the server cares for. */
export function toYaml(object: unknown): string {
  return stringify(ordered(object), { lineWidth: 0, aliasDuplicateObjects: false });
}

const metadataOrder = ['name', 'namespace', 'labels', 'annotations'];
const order = ['apiVersion', 'kind', 'metadata', 'type', 'spec', 'data', 'stringData', 'status'];

function ordered(object: unknown): unknown {
  if (!isRecord(object)) return object;
  const copy = structuredClone(object);
  if (isRecord(copy['metadata'])) {
    delete copy['metadata']['managedFields'];
    copy['metadata'] = inOrder(copy['metadata'], metadataOrder);
  }
  return inOrder(copy, order);
}

function inOrder(record: Record<string, unknown>, names: readonly string[]): Record<string, unknown> {
  const place = (name: string) => (names.includes(name) ? names.indexOf(name) : names.length);
  return Object.fromEntries(Object.entries(record).sort(([a], [b]) => place(a) - place(b)));
}

/** What the user wrote, or why it cannot be read. */
export function fromYaml(text: string): { object: KubeObject } | { problem: string } {
  const document = parseDocument(text, { prettyErrors: true });
  const [error] = document.errors;
  // What follows the first line is the place again, drawn with characters.
  if (error) return { problem: error.message.split('\n')[0] ?? error.message };
  const value: unknown = document.toJS({ maxAliasCount: 100 });
  if (!isRecord(value)) return { problem: 'an object is needed' };
  const metadata = value['metadata'];
  if (!isRecord(metadata) || (typeof metadata['name'] !== 'string' && typeof metadata['generateName'] !== 'string')) {
    return { problem: 'metadata.name is missing' };
  }
  return { object: value as unknown as KubeObject };
}
