import { createObject, deleteObject, mergePatch } from '@/api/client';
import type { Secret } from '@/api/core';
import { kinds } from '@/api/kinds';
import { decode, encode, hashPassword } from './password';

/** Local users are Secrets: docs/adr/0005-users-and-tokens.md. */

export const usersNamespace = 'kube-system';
export const userSelector = { namespace: usersNamespace, fieldSelector: 'type=croft.io/user' };
export const tokenSelector = { namespace: usersNamespace, fieldSelector: 'type=croft.io/token' };
export const masters = 'system:masters';

export interface LocalUser {
  name: string;
  groups: string[];
  mustChangePassword: boolean;
  secret: Secret;
}

export function userOf(secret: Secret): LocalUser {
  return {
    name: decode(secret.data?.['username']),
    groups: list(decode(secret.data?.['groups'])),
    mustChangePassword: decode(secret.data?.['must-change-password']) === 'true',
    secret,
  };
}

function list(text: string): string[] {
  return text.split(',').map((each) => each.trim()).filter(Boolean);
}

export function userSecret(name: string, groups: readonly string[], passwordHash: string): Secret {
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    type: 'croft.io/user',
    metadata: { name: `user-${name}`, namespace: usersNamespace },
    data: { username: encode(name), groups: encode(groups.join(',')), 'password-hash': encode(passwordHash), 'must-change-password': encode('true') },
  };
}

export async function createUser(name: string, groups: readonly string[], password: string): Promise<void> {
  await createObject(kinds.secrets, userSecret(name, groups, await hashPassword(password)));
}

/**
 * Whoever used the old password is signed out, and what was made with it ends: it may have been somebody else. The server sees to
 * that in the same write; to remove the tokens as well only tidies up the list.
 */
export async function resetPassword(user: LocalUser, password: string, tokens: readonly Token[]): Promise<void> {
  const hash = await hashPassword(password);
  await mergePatch(kinds.secrets, user.secret, { data: { 'password-hash': encode(hash), 'must-change-password': encode('true') } });
  const ended = tokens.filter((each) => each.account === user.secret.metadata.uid);
  await Promise.allSettled(ended.map((token) => deleteObject(kinds.secrets, token.secret)));
}

export async function setGroups(user: LocalUser, groups: readonly string[]): Promise<void> {
  await mergePatch(kinds.secrets, user.secret, { data: { groups: encode(groups.join(',')) } });
}

export interface Token {
  id: string;
  user: string;
  groups: string[];
  description: string;
  /** `session`, `apikey`, `kubeconfig`; empty for those of the command line. */
  kind: string;
  account: string;
  expires: string;
  created: string | undefined;
  secret: Secret;
}

export function tokenOf(secret: Secret): Token {
  const data = (name: string) => decode(secret.data?.[name]);
  return {
    id: secret.metadata.name,
    user: data('user'),
    groups: list(data('groups')),
    description: data('description'),
    kind: data('kind'),
    account: data('account'),
    expires: data('expires'),
    created: secret.metadata.creationTimestamp,
    secret,
  };
}
