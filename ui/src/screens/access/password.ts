/**
 * Passwords as the server keeps them: argon2id in the PHC format, with OWASP's parameters, as croft itself makes them. A user is a
 * Secret, and a Secret takes a hash: so it is made here, and the password never leaves the page.
 */

const memoryKib = 19_456;
const passes = 2;
const saltBytes = 16;
const hashBytes = 32;

export const shortest = 12;

export async function hashPassword(password: string, salt = crypto.getRandomValues(new Uint8Array(saltBytes))): Promise<string> {
  const { argon2idAsync } = await import('@noble/hashes/argon2.js');
  const hash = await argon2idAsync(new TextEncoder().encode(password), salt, { t: passes, m: memoryKib, p: 1, dkLen: hashBytes });
  return `$argon2id$v=19$m=${memoryKib},t=${passes},p=1$${unpadded(salt)}$${unpadded(hash)}`;
}

function unpadded(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/=+$/, '');
}

export function encode(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

export function decode(base64: string | undefined): string {
  if (!base64) return '';
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
  } catch {
    return '';
  }
}
