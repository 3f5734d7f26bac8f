import { field, title } from './support/fields.ts';
import { empty, have, machinesPath } from './support/guests.ts';
import { nobody } from './support/session.ts';
import { adminPassword, expect, test } from './support/test.ts';

test.use({ storageState: nobody });

test('the page may run only what the server itself carries', async ({ page, watcher }) => {
  const answer = await page.goto('');
  const policy = answer?.headers()['content-security-policy'] ?? '';
  const directives = new Map(policy.split(';').map((part) => part.trim().split(/\s+/)).map(([name = '', ...sources]) => [name, sources]));
  expect(directives.get('script-src')).toEqual(["'self'"]);
  expect(directives.get('object-src') ?? directives.get('default-src')).toEqual(["'none'"]);
  expect(directives.get('frame-ancestors')).toEqual(["'none'"]);
  expect(directives.get('base-uri')).toEqual(["'none'"]);
  expect(policy).not.toContain('unsafe-eval');
  expect(answer?.headers()['x-content-type-options']).toBe('nosniff');
  const html = (await answer?.text()) ?? '';
  expect(html).not.toMatch(/<script(?![^>]*\ssrc=)/);
  expect(html).not.toMatch(/\son\w+=/);
  // And it holds: what somebody gets into the page does not run.
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
  watcher.expect(/^Executing inline script violates/);
  const stopped = await page.evaluate(
    () =>
      new Promise<string>((resolve) => {
        document.addEventListener('securitypolicyviolation', (event) => resolve(event.violatedDirective));
        const script = document.createElement('script');
        script.textContent = 'window.pwned = 1';
        document.body.append(script);
      }),
  );
  expect(stopped).toMatch(/^script-src/);
  expect(await page.evaluate(() => 'pwned' in window)).toBe(false);
});

test('nothing secret is where a script, a link or a look over the shoulder finds it', async ({ page, context }) => {
  await page.goto('overview');
  await field(page, 'User').fill('admin');
  await field(page, 'Password').fill(adminPassword);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(title(page, 'Dashboard')).toBeVisible();

  const cookies = await context.cookies();
  const session = cookies.find(({ name }) => name === 'R_SESS');
  expect(session).toMatchObject({ httpOnly: true, secure: true, sameSite: 'Lax' });
  for (const cookie of cookies) expect(cookie, cookie.name).toMatchObject({ secure: true, sameSite: 'Lax' });
  const seen = await page.evaluate(() => ({ cookie: document.cookie, local: { ...localStorage }, tab: { ...sessionStorage }, url: window.location.href, html: document.documentElement.outerHTML }));
  const [id = '', secret = ''] = (session?.value ?? '').split(':');
  expect(id).toMatch(/^token-/);
  for (const part of [secret, adminPassword, 'R_SESS']) expect(JSON.stringify(seen), part).not.toContain(part);
  expect(JSON.stringify([seen.local, seen.tab, seen.url]).toLowerCase()).not.toMatch(/password|token|secret|csrf/);
});

test('a change without the CSRF header is refused', async ({ page, server, adminSession, newBrowser }) => {
  await have(server, machinesPath, empty('safe'));
  const signedIn = await newBrowser(adminSession);
  await signedIn.goto('machines');
  await expect(signedIn.getByRole('link', { name: 'safe', exact: true })).toBeVisible();
  const codes = await signedIn.evaluate(async (path) => {
    const send = async (method: string, url: string, headers: Record<string, string>) => (await fetch(url, { method, headers })).status;
    return [
      await send('DELETE', `${path}/safe`, {}),
      await send('DELETE', `${path}/safe`, { 'X-API-CSRF': 'guessed' }),
      await send('POST', '/v1/harvester/kubevirt.io.virtualmachines/default/safe?action=start', {}),
      await send('GET', `${path}/safe`, {}),
    ];
  }, machinesPath);
  // As Rancher does it.
  expect(codes).toEqual([422, 422, 422, 200]);
  const machine = await server.api.get<{ metadata: object; spec: { runStrategy: string } }>(`${machinesPath}/safe`);
  expect(machine.metadata).not.toHaveProperty('deletionTimestamp');
  expect(machine.spec.runStrategy).toBe('Halted');
  // The first page is of somebody who is not signed in: to him there is nothing.
  await page.goto('machines');
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
  expect(await page.evaluate(async (path) => (await fetch(path)).status, machinesPath)).toBeGreaterThanOrEqual(401);
});
