import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { act, confirm, dialog, field, row, title } from './support/fields.ts';
import { expect, test } from './support/test.ts';

test('a volume is made, expanded and deleted', async ({ page }) => {
  await page.goto('volumes');
  await page.getByRole('button', { name: 'Create volume' }).first().click();
  const form = dialog(page, 'New volume');
  await field(form, 'Name').fill('papers');
  await field(form, 'Size').fill('1');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(row(page, 'papers')).toContainText('1 GiB');
  await expect(row(page, 'papers').getByText('Ready')).toBeVisible();

  await act(page, 'papers', 'Expand');
  const expand = dialog(page, 'Expand papers');
  await expect(expand.getByRole('button', { name: 'Expand' })).toBeDisabled();
  await field(expand, 'New size').fill('2');
  await expand.getByRole('button', { name: 'Expand' }).click();
  await expect(row(page, 'papers')).toContainText('2 GiB');

  await act(page, 'papers', 'Delete');
  await expect(dialog(page, 'Delete papers?')).toContainText('All that is on the volume is lost');
  await confirm(page, 'Delete papers?', 'Delete');
  await expect(row(page, 'papers')).toHaveCount(0);
});

test('an image that cannot be fetched says why', async ({ page }) => {
  const web = createServer((_, response) => response.writeHead(404).end()).listen(0, '127.0.0.1');
  await once(web, 'listening');
  await page.goto('images/new');
  await field(page, 'URL').fill('ftp://nowhere');
  await expect(page.getByText('It begins with http:// or https://.')).toBeVisible();
  await field(page, 'URL').fill(`http://127.0.0.1:${(web.address() as AddressInfo).port}/nowhere.qcow2`);
  await page.getByRole('button', { name: 'Start download' }).click();
  await expect(title(page, 'Images')).toBeVisible();
  await expect(row(page, 'nowhere.qcow2').getByText('Failed')).toBeVisible({ timeout: 90_000 });
  await page.getByRole('link', { name: 'nowhere.qcow2' }).click();
  await expect(page.getByText(/404/).first()).toBeVisible();
  web.close();
});

test('a storage class is made and becomes the default', async ({ page, server }) => {
  await page.goto('storage-classes/new');
  await field(page, 'Name').fill('keeps');
  await page.getByLabel('The data stays until an administrator deletes it').check();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(title(page, 'keeps')).toBeVisible();
  await page.goto('storage-classes');
  await expect(row(page, 'harvester-longhorn').getByText('default', { exact: true })).toBeVisible();
  await act(page, 'keeps', 'Make it the default');
  await confirm(page, 'Make keeps the default?', 'Make it the default');
  await expect(row(page, 'keeps').getByText('default', { exact: true })).toBeVisible();
  await expect(row(page, 'harvester-longhorn').getByText('default', { exact: true })).toHaveCount(0);
  await act(page, 'harvester-longhorn', 'Make it the default');
  await confirm(page, 'Make harvester-longhorn the default?', 'Make it the default');
  await act(page, 'keeps', 'Delete');
  await confirm(page, 'Delete keeps?', 'Delete');
  await expect(row(page, 'keeps')).toHaveCount(0);
  expect(await server.api.exists('/apis/storage.k8s.io/v1/storageclasses/keeps')).toBe(false);
});
