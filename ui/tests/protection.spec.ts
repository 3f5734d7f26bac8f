import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { act, choose, dialog, field, row, title } from './support/fields.ts';
import { guest, have, haveImage, machinesPath } from './support/guests.ts';
import { expect, test } from './support/test.ts';

test.describe.configure({ mode: 'serial' });

test.beforeAll(async ({ server }) => {
  await haveImage(server);
  // It need not run to be kept.
  await have(server, machinesPath, guest('kept', { running: false }));
});

test('a snapshot of a machine is taken and becomes another machine', async ({ page }) => {
  await page.goto('machines/default/kept/snapshots');
  await page.getByRole('button', { name: 'Take snapshot' }).click();
  const form = dialog(page, 'Snapshot of kept');
  await field(form, 'Name').fill('before');
  await form.getByRole('button', { name: 'Take snapshot' }).click();
  await expect(page.getByRole('row', { name: /before/ }).getByText('Ready')).toBeVisible();
  await page.getByRole('row', { name: /before/ }).getByRole('button', { name: 'Restore' }).click();
  const restore = dialog(page, 'Restore before');
  await restore.getByLabel('Make a new machine').check();
  await field(restore, 'Name of the new machine').fill('again');
  await restore.getByRole('switch', { name: 'Do not start it afterwards' }).check();
  await restore.getByRole('button', { name: 'Restore' }).click();
  await page.goto('restores');
  await expect(page.getByRole('row').filter({ hasText: 'again' }).getByText('Done')).toBeVisible();
  await page.goto('machines/default/again');
  await expect(title(page, 'again')).toBeVisible();
  await expect(page.getByText('Stopped', { exact: true })).toBeVisible();
});

test('a backup target is tried before it is set, and refused where it does not work', async ({ page, server }) => {
  const directory = join(server.dataDir, 'backups');
  mkdirSync(directory, { recursive: true });
  await page.goto('backup-target');
  await expect(page.getByText('There is no backup target yet')).toBeVisible();
  await page.getByLabel('Directory').check();
  await field(page, 'Address').fill('file:///nowhere/at/all');
  await page.getByRole('button', { name: 'Test connection' }).click();
  await expect(page.getByText('the backup target does not exist')).toBeVisible();
  await field(page, 'Address').fill(`file://${directory}`);
  await page.getByRole('button', { name: 'Test connection' }).click();
  await expect(page.getByText('The connection works')).toBeVisible();
  await page.getByRole('button', { name: 'Save' }).first().click();
  await expect(page.getByText('Works', { exact: true })).toBeVisible();
});

test('a machine is backed up to it', async ({ page, server }) => {
  await page.goto('backups');
  await page.getByRole('button', { name: 'Back up' }).first().click();
  await choose(dialog(page, 'Back up'), 'Machine', 'default/kept');
  const form = dialog(page, 'Back up kept');
  await field(form, 'Name').fill('nightly');
  await form.getByRole('button', { name: 'Back up' }).click();
  await expect(row(page, 'nightly').getByText('Ready')).toBeVisible({ timeout: 90_000 });
  expect(readdirSync(join(server.dataDir, 'backups')).length).toBeGreaterThan(0);
  await page.goto('backup-volumes');
  await expect(page.getByRole('link', { name: /^pvc-/ }).first()).toBeVisible();
});

test('a schedule is made, suspended and resumed', async ({ page }) => {
  await page.goto('schedules');
  await page.getByRole('button', { name: 'New schedule' }).first().click();
  const form = dialog(page, 'New schedule');
  await choose(form, 'Machine', 'kept');
  await expect(field(form, 'Name')).toHaveValue('kept-snapshots');
  await choose(form, 'When', 'Every hour');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(row(page, 'kept-snapshots').getByText('Active')).toBeVisible();
  await act(page, 'kept-snapshots', 'Suspend');
  await expect(row(page, 'kept-snapshots').getByText('Suspended')).toBeVisible();
  await act(page, 'kept-snapshots', 'Resume');
  await expect(row(page, 'kept-snapshots').getByText('Active')).toBeVisible();
});
