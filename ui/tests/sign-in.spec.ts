import type { Page } from '@playwright/test';
import { field, title } from './support/fields.ts';
import { nobody } from './support/session.ts';
import { expect, test } from './support/test.ts';

// A server of its own that is started for the first time: it makes up the password and prints it.
test.use({ serverOptions: { node: false }, storageState: nobody });
test.describe.configure({ mode: 'serial' });

const chosen = 'a password of my own';

async function signIn(page: Page, password: string): Promise<void> {
  await field(page, 'User').fill('admin');
  await field(page, 'Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

test('whoever has never been here is told where the password is', async ({ page }) => {
  await page.goto('');
  await expect(title(page, 'Croft')).toBeVisible();
  await expect(page.getByText('The server printed the password of the user admin when it started first.')).toBeVisible();
});

test('a wrong password is refused in plain words', async ({ page }) => {
  await page.goto('');
  await signIn(page, 'not the password');
  await expect(page.getByRole('alert')).toHaveText('The user or the password is wrong.');
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeEnabled();
  await expect(page.getByRole('navigation')).toBeHidden();
});

test('the password that the server made up is changed at the first sign-in', async ({ page, server }) => {
  const printed = /password\s+(\S+)\s+\(shown only this once\)/.exec(server.log)?.[1] ?? '';
  await page.goto('machines');
  await signIn(page, printed);
  await expect(title(page, 'Choose your own password')).toBeVisible();
  const submit = page.getByRole('button', { name: 'Set password and go on' });
  // What was typed a moment ago is asked for again only where the page has been loaded anew.
  await page.reload();
  await expect(field(page, 'Current password')).toBeVisible();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await signIn(page, printed);
  await expect(title(page, 'Choose your own password')).toBeVisible();
  await expect(field(page, 'Current password')).toBeHidden();
  await field(page, 'New password').fill('short');
  await expect(page.getByText('7 more characters')).toBeVisible();
  await field(page, 'New password').fill(chosen);
  await field(page, 'New password again').fill('something else');
  await expect(page.getByText('The two are not the same.')).toBeVisible();
  await expect(submit).toBeDisabled();
  await field(page, 'New password again').fill(chosen);
  await submit.click();
  // And on to what was asked for.
  await expect(title(page, 'Virtual machines')).toBeVisible();
  await expect(page).toHaveURL(/\/dashboard\/machines$/);
});

test('signing out ends the session, and going back does not bring it back', async ({ page }) => {
  await page.goto('');
  await signIn(page, chosen);
  await expect(title(page, 'Dashboard')).toBeVisible();
  await page.getByRole('link', { name: 'Settings' }).click();
  await expect(title(page, 'Settings')).toBeVisible();
  const cookies = await page.context().cookies();
  await page.getByRole('button', { name: 'User menu' }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
  // The cookie itself is worth nothing any more, also to somebody who kept it.
  await page.context().addCookies(cookies);
  await page.reload();
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
});

test('a deep link leads through the sign-in to where it points', async ({ page }) => {
  await page.goto('settings/log-level?tab=none');
  await signIn(page, chosen);
  await expect(title(page, 'log-level')).toBeVisible();
  await expect(page).toHaveURL(/\/settings\/log-level/);
});

test('a session that was ended elsewhere asks for the password and goes on where it was', async ({ page, server }) => {
  await page.goto('namespaces');
  await signIn(page, chosen);
  await page.getByRole('button', { name: 'Create namespace' }).click();
  await field(page, 'Name').fill('half-typed');
  const { items } = await server.api.get<{ items: { metadata: { name: string } }[] }>('/api/v1/namespaces/kube-system/secrets');
  const tokens = items.map(({ metadata }) => metadata.name).filter((name) => name.startsWith('token-'));
  for (const name of tokens) await server.api.delete(`/api/v1/namespaces/kube-system/secrets/${name}`);
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  const over = page.getByRole('dialog', { name: 'Sign in' });
  await expect(over.getByText('Your session has ended. Sign in to go on where you were.')).toBeVisible();
  await field(over, 'Password').fill(chosen);
  await over.getByRole('button', { name: 'Sign in' }).click();
  await expect(over).toBeHidden();
  // Nothing that was typed is lost.
  await expect(field(page, 'Name')).toHaveValue('half-typed');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(page.getByRole('link', { name: 'half-typed' })).toBeVisible();
});

test('too many wrong passwords have to wait, and are told so', async ({ page }) => {
  await page.goto('');
  const answers: number[] = [];
  while (!answers.includes(429) && answers.length < 10) {
    const answered = page.waitForResponse(/action=login/);
    await signIn(page, 'not the password');
    answers.push((await answered).status());
    await expect(page.getByRole('alert')).toBeVisible();
  }
  await expect(page.getByRole('alert')).toHaveText('Too many tries. Wait a moment and try again.');
});
