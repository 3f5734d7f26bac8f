import { expect, type Locator, type Page } from '@playwright/test';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { dialog, field, title } from './support/fields.ts';
import { nobody } from './support/session.ts';
import { test } from './support/test.ts';

// A server of its own: the admin of the others signs in with a password alone.
test.use({ serverOptions: { node: false }, storageState: nobody });

const run = promisify(execFile);
const chosen = 'a password of my own';

async function signIn(page: Page, password: string): Promise<void> {
  await field(page, 'User').fill('admin');
  await field(page, 'Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

async function menu(page: Page, entry: string): Promise<void> {
  await page.getByRole('button', { name: 'User menu' }).click();
  await page.getByRole('menuitem', { name: entry, exact: true }).click();
}

/** The key in the picture, as the camera of a phone reads it. */
async function scanned(picture: Locator, file: string): Promise<string> {
  await writeFile(file, await picture.screenshot());
  const { stdout } = await run('zbarimg', ['--quiet', '--raw', file]);
  return new URL(stdout.trim()).searchParams.get('secret') ?? '';
}

/** What an app shows so many steps from now. */
async function code(key: string, stepsAhead: number): Promise<string> {
  const then = Math.floor(Date.now() / 1000) + 30 * stepsAhead;
  const { stdout } = await run('oathtool', ['--totp', '--base32', key, `--now=@${then}`]);
  return stdout.trim();
}

test('a second factor is switched on by a picture, asked for at the sign-in, and switched off', async ({ page, server }, testInfo) => {
  const printed = /password\s+(\S+)\s+\(shown only this once\)/.exec(server.log)?.[1] ?? '';
  await page.goto('settings');
  await signIn(page, printed);
  await field(page, 'New password').fill(chosen);
  await field(page, 'New password again').fill(chosen);
  await page.getByRole('button', { name: 'Set password and go on' }).click();
  await expect(title(page, 'Settings')).toBeVisible();

  await menu(page, 'Second factor');
  const form = dialog(page, 'Second factor');
  await field(form, 'Current password').fill('not the password');
  await form.getByRole('button', { name: 'Next' }).click();
  await expect(form.getByRole('alert')).toHaveText('invalid current password');
  await field(form, 'Current password').fill(chosen);
  await form.getByRole('button', { name: 'Next' }).click();
  const picture = form.getByRole('img', { name: 'QR code for the authenticator app' });
  const key = await scanned(picture, testInfo.outputPath('qr.png'));
  await expect(form.getByText(key, { exact: true })).toBeVisible();
  await field(form, 'Code').fill('abc');
  await form.getByRole('button', { name: 'Switch on' }).click();
  await expect(form.getByRole('alert')).toHaveText('The code is wrong, too old, or was used before.');
  await field(form, 'Code').fill(await code(key, 0));
  await form.getByRole('button', { name: 'Switch on' }).click();
  const recovery = form.getByRole('list', { name: 'Recovery codes' }).getByRole('listitem');
  await expect(recovery).toHaveCount(10);
  const [first = ''] = await recovery.allTextContents();
  await form.getByRole('button', { name: 'I have kept them' }).click();
  await expect(page.getByText('From now on you sign in with a code')).toBeVisible();

  await menu(page, 'Sign out');
  await signIn(page, chosen);
  await field(page, 'Code').fill('000 00');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('main').getByRole('alert')).toHaveText('The code is wrong, too old, or was used before.');
  await expect(page.getByRole('navigation')).toBeHidden();
  await page.getByRole('button', { name: 'Back' }).click();
  await signIn(page, chosen);
  await field(page, 'Code').fill(await code(key, 1));
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(title(page, 'Settings')).toBeVisible();

  await menu(page, 'Second factor');
  await expect(form.getByText('10 recovery codes are left.')).toBeVisible();
  await field(form, 'Code').fill(first);
  await form.getByRole('button', { name: 'Switch off' }).click();
  await expect(page.getByText('From now on you sign in with the password alone')).toBeVisible();
  await menu(page, 'Sign out');
  await signIn(page, chosen);
  await expect(title(page, 'Settings')).toBeVisible();
});
