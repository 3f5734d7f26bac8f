import type { BrowserContext } from '@playwright/test';
import type { Api } from './api.ts';

export type Session = Awaited<ReturnType<BrowserContext['storageState']>>;

/** Nobody is signed in. */
export const nobody: Session = { cookies: [], origins: [] };

/** Signs in without the page: the cookies that the server sets, as a browser keeps them. */
export async function cookiesOf(api: Api, username: string, password: string): Promise<Session> {
  const answer = await api.send('POST', '/v3-public/localProviders/local?action=login', { username, password, responseType: 'cookie' });
  if (answer.status >= 300) throw new Error(`${username} cannot sign in: ${answer.status} ${answer.text}`);
  const { hostname } = new URL(api.url);
  const cookies = [answer.headers['set-cookie'] ?? []].flat().map((line) => {
    const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
    const httpOnly = /;\s*httponly/i.test(line);
    return { name, value, domain: hostname, path: '/', expires: -1, httpOnly, secure: true, sameSite: 'Lax' as const };
  });
  return { cookies, origins: [] };
}
