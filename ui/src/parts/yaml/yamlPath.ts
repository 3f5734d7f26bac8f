/** Where in a YAML document a line is, without parsing what is not finished yet. */

interface Line {
  indent: number;
  key: string | null;
  item: boolean;
}

/** The fields above a line that is indented so far: `spec: template:` is `['spec', 'template']`; `[]` is a list's element. */
export function pathAbove(lines: readonly string[], index: number, indent: number): string[] {
  const path: string[] = [];
  let inner = indent;
  let inList = false;
  for (let at = index - 1; at >= 0 && inner > 0; at -= 1) {
    for (const part of parts(lines[at] ?? '').toReversed()) {
      const sibling = part.item && inList && part.indent === inner - 1;
      if (part.indent >= inner || sibling) continue;
      path.unshift(part.key ?? '[]');
      // A list may stand at the same column as the field it belongs to.
      inner = part.item ? part.indent + 1 : part.indent;
      inList = part.item;
    }
  }
  return path;
}

/** `- name: x` is both an element and a field two columns further in. */
function parts(text: string): Line[] {
  const match = /^(\s*)((?:- +)*)([A-Za-z0-9_./-]+)?\s*:?/.exec(text);
  if (!match || text.trim() === '' || text.trim().startsWith('#')) return [];
  const found: Line[] = [];
  let indent = match[1]?.length ?? 0;
  for (const dash of match[2]?.match(/- +/g) ?? []) {
    found.push({ indent, key: null, item: true });
    indent += dash.length;
  }
  const key = /^\s*(?:- +)*("?)([A-Za-z0-9_./-]+)\1\s*:/.exec(text)?.[2] ?? null;
  if (key !== null) found.push({ indent, key, item: false });
  else if (/^\s*-\s*$/.test(text)) found.push({ indent, key: null, item: true });
  return found;
}
