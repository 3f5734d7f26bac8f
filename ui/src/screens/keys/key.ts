import { apiVersionOf, kinds } from '@/api/kinds';
import type { KeyPair } from '@/api/harvester';
import type { Tone } from '@/parts/StatusBadge';

/** What a public key says about itself: `ssh-ed25519 AAAA… anna@laptop`. */

const shape = /^(ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S+|sk-(?:ssh|ecdsa)\S+)\s+([A-Za-z0-9+/=]+)(?:\s+(.*))?$/;

export interface PublicKey {
  algorithm: string;
  comment: string;
}

export function parsePublicKey(line: string): PublicKey | null {
  const match = shape.exec(line.trim());
  return match ? { algorithm: match[1] ?? '', comment: match[3]?.trim() ?? '' } : null;
}

/** A private key begins like this; it must never be sent anywhere. */
export function isPrivateKey(text: string): boolean {
  return /-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(text);
}

export function keyObject(name: string, namespace: string, publicKey: string): KeyPair {
  return { apiVersion: apiVersionOf(kinds.keyPairs), kind: kinds.keyPairs.kind, metadata: { name, namespace }, spec: { publicKey: publicKey.trim() } };
}

export type KeyState = 'valid' | 'invalid' | 'checking';

export const keyTones: Record<KeyState, Tone> = { valid: 'ok', invalid: 'bad', checking: 'busy' };

export function stateOf(key: KeyPair): { state: KeyState; message: string | undefined } {
  const condition = key.status?.conditions?.find((each) => each.type === 'validated');
  if (condition?.status === 'True') return { state: 'valid', message: undefined };
  if (condition?.status === 'False') return { state: 'invalid', message: condition.message };
  return { state: 'checking', message: undefined };
}
