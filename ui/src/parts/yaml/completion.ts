import type { Completion, CompletionContext, CompletionResult } from '@codemirror/autocomplete';
import type { Schema, SchemaSet } from '@/api/openapi';
import { resolve, schemaAt } from '@/api/openapi';
import { pathAbove } from './yamlPath';

/** Offers fields and values as the server's schema has them. */
export function completeFrom(set: SchemaSet) {
  return (context: CompletionContext): CompletionResult | null => {
    const line = context.state.doc.lineAt(context.pos);
    const before = line.text.slice(0, context.pos - line.from);
    const lines = context.state.doc.toString().split('\n');
    const value = /^(\s*(?:- +)*)([\w./-]+):\s+(\S*)$/.exec(before);
    if (value) {
      const [, lead = '', key = '', typed = ''] = value;
      const schema = schemaAt(set, [...scope(lines, line.number - 1, lead), key]);
      return offer(context, typed, valuesOf(schema));
    }
    const field = /^(\s*(?:- +)*)([\w./-]*)$/.exec(before);
    if (!field) return null;
    const [, lead = '', typed = ''] = field;
    if (typed === '' && !context.explicit) return null;
    const schema = schemaAt(set, scope(lines, line.number - 1, lead));
    return offer(context, typed, fieldsOf(schema, set));
  };
}

function scope(lines: readonly string[], index: number, lead: string): string[] {
  const dashes = lead.match(/- +/g)?.length ?? 0;
  const indent = lead.length;
  if (dashes === 0) return pathAbove(lines, index, indent);
  const outer = lead.indexOf('-');
  // The list of `- x` may stand right below its field, at the same column.
  const above = pathAbove(lines, index, outer + 1);
  return above.at(-1) === '[]' ? above : [...above, ...Array<string>(dashes).fill('[]')];
}

function offer(context: CompletionContext, typed: string, options: Completion[]): CompletionResult | null {
  if (options.length === 0) return null;
  return { from: context.pos - typed.length, options, validFor: /^[\w./-]*$/ };
}

function fieldsOf(schema: Schema | undefined, set: SchemaSet): Completion[] {
  return Object.entries(schema?.properties ?? {}).map(([name, raw]) => {
    const field = resolve(raw, set.all);
    const nested = field?.properties || field?.type === 'object' || field?.type === 'array';
    return {
      label: name,
      type: 'property',
      detail: field?.type ?? '',
      apply: nested ? `${name}:` : `${name}: `,
      ...(field?.description && { info: field.description }),
    };
  });
}

function valuesOf(schema: Schema | undefined): Completion[] {
  if (schema?.enum) return schema.enum.map((label) => ({ label, type: 'enum' }));
  if (schema?.type === 'boolean') return ['true', 'false'].map((label) => ({ label, type: 'keyword' }));
  return [];
}
