import { useSyncExternalStore } from 'react';
import { request, whenUnauthorized } from '@/api/client';
import { closeCollections } from '@/api/collections';
import { connection } from '@/api/connection';
import { asApiError } from '@/api/errors';

/** Who uses this page. The session itself is a cookie that no script can read. */

export interface User {
  id: string;
  name: string;
  mustChangePassword: boolean;
}

export type Session =
  | { state: 'unknown' }
  | { state: 'unreachable' }
  | { state: 'signedOut' }
  | { state: 'signedIn'; user: User; expired: boolean };

interface UserRecord {
  id: string;
  name?: string;
  username: string;
  mustChangePassword?: boolean;
}

let session: Session = { state: 'unknown' };
/** What was typed a moment ago, where it has to be changed at once: nobody should type it twice. */
let outdated: string | undefined;
const listeners = new Set<() => void>();

function become(next: Session): void {
  session = next;
  listeners.forEach((listener) => listener());
}

whenUnauthorized(() => {
  // The screen stays as it is below the question for the password: nobody loses what he was typing.
  if (session.state === 'signedIn' && !session.expired) become({ ...session, expired: true });
});

export function useSession(): Session {
  return useSyncExternalStore(subscribe, () => session);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export async function resumeSession(): Promise<void> {
  try {
    become({ state: 'signedIn', user: await whoAmI(), expired: false });
  } catch (caught) {
    const error = asApiError(caught);
    become(error.unreachable ? { state: 'unreachable' } : { state: 'signedOut' });
  }
}

/** Refused with the reason `TotpRequired` if the user has a second factor and no code of it is given. */
export async function signIn(username: string, password: string, totp?: string): Promise<void> {
  await request('POST', '/v3-public/localProviders/local?action=login', { username, password, totp, responseType: 'cookie' });
  const user = await whoAmI();
  if (session.state === 'signedIn' && session.user.id !== user.id) forgetEverything();
  outdated = user.mustChangePassword ? password : undefined;
  become({ state: 'signedIn', user, expired: false });
  connection.wakeAll();
}

export async function signOut(): Promise<void> {
  // Whatever the server says, the user wants to leave.
  await request('POST', '/v3/tokens?action=logout', {}).catch(() => undefined);
  forgetEverything();
  outdated = undefined;
  become({ state: 'signedOut' });
}

/** The password that was signed in with, if it has to be changed; nothing after a reload. */
export function outdatedPassword(): string | undefined {
  return outdated;
}

export async function changePassword(currentPassword: string, newPassword: string): Promise<void> {
  await request('POST', '/v3/users?action=changepassword', { currentPassword, newPassword });
  outdated = undefined;
  if (session.state === 'signedIn') become({ ...session, user: { ...session.user, mustChangePassword: false } });
}

async function whoAmI(): Promise<User> {
  const { data } = await request<{ data: UserRecord[] }>('GET', '/v3/users?me=true');
  const me = data[0];
  if (!me) throw new Error('the server does not say who is signed in');
  return { id: me.id, name: me.name || me.username, mustChangePassword: me.mustChangePassword ?? false };
}

const forgetters: (() => void)[] = [closeCollections];

/** Has something forgotten when another user signs in. */
export function onForget(forget: () => void): void {
  forgetters.push(forget);
}

function forgetEverything(): void {
  forgetters.forEach((forget) => forget());
}
