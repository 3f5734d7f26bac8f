/** What X calls the keys; VNC speaks of keys by these numbers. */
const shift = 0xffe1;
const named: Record<string, number> = { '\n': 0xff0d, '\t': 0xff09, '\b': 0xff08, '\u001b': 0xff1b };

export function keysymOf(character: string): number {
  const known = named[character];
  if (known !== undefined) return known;
  const code = character.codePointAt(0) ?? 0;
  // Latin-1 is as it is; everything else is Unicode with a mark.
  return (code >= 0x20 && code <= 0x7e) || (code >= 0xa0 && code <= 0xff) ? code : 0x01000000 | code;
}

/** On an American keyboard these are typed with Shift, which many guests want to see. */
function needsShift(character: string): boolean {
  return /[A-Z~!@#$%^&*()_+{}|:"<>?]/.test(character);
}

export function typeText(text: string, send: (keysym: number, down: boolean) => void): void {
  for (const character of text.replaceAll('\r\n', '\n')) {
    const keysym = keysymOf(character);
    const shifted = needsShift(character);
    if (shifted) send(shift, true);
    send(keysym, true);
    send(keysym, false);
    if (shifted) send(shift, false);
  }
}
