import type { Secret } from '@/api/core';

/** The Secret with the keys of encrypted backups: the current one, and those of earlier backups. */

export const secretNamespace = 'longhorn-system';
export const secretName = 'croft-backup-encryption';
export const currentKey = 'CRYPTO_KEY_VALUE';
const keyBytes = 32;

/** A key of 32 random bytes, as text that can be kept in a password manager. */
export function newKey(): string {
  return toBase64(crypto.getRandomValues(new Uint8Array(keyBytes)));
}

export function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

export function encode(text: string): string {
  return toBase64(new TextEncoder().encode(text));
}

/** The server wants a key of at least 32 bytes. */
export function isLongEnough(key: string): boolean {
  return new TextEncoder().encode(key).length >= keyBytes;
}

export function keyObject(key: string): Secret {
  return { apiVersion: 'v1', kind: 'Secret', metadata: { name: secretName, namespace: secretNamespace }, type: 'Opaque', data: { [currentKey]: encode(key) } };
}

/** The key that was in use stays readable under another name; with `null` new backups are not encrypted any more. */
export function replaced(secret: Secret, key: string | null, now: Date): Record<string, string | null> {
  const before = secret.data?.[currentKey];
  const stamp = now.toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '-');
  return { ...(before && { [`until-${stamp}`]: before }), [currentKey]: key === null ? null : encode(key) };
}

export function isEncrypting(secret: Secret | undefined): boolean {
  return Boolean(secret?.data?.[currentKey]);
}

export function earlierKeys(secret: Secret | undefined): string[] {
  return Object.keys(secret?.data ?? {}).filter((name) => name !== currentKey).sort();
}
