import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from '@playwright/test';
import { Screen, SerialConsole } from './support/consoles.ts';
import { choose, field, title } from './support/fields.ts';
import { guest, guestPassword, have, haveImage, machinesPath } from './support/guests.ts';
import type { Server } from './support/server.ts';
import { expect, test } from './support/test.ts';

/** The pictures of docs/images: `scripts/ui screenshots` makes them anew. */
const images = fileURLToPath(new URL('../../docs/images', import.meta.url));

test.describe.configure({ mode: 'serial', timeout: 600_000 });
test.use({ trace: 'off' });

async function picture(page: Page, name: string): Promise<void> {
  await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
  await page.evaluate(() => document.fonts.ready);
  await page.mouse.move(0, 0);
  mkdirSync(images, { recursive: true });
  await page.screenshot({ path: join(images, `${name}.png`), animations: 'disabled' });
}

const running = { 'web-1': '512Mi', 'web-2': '512Mi', database: '1Gi', mail: '768Mi' };
const stopped = { 'build-runner': '8Gi', 'windows-test': '4Gi', 'old-wiki': '2Gi' };

/** What a small office might have. */
async function office(server: Server): Promise<void> {
  await haveImage(server);
  const backups = join(server.dataDir, 'backups');
  mkdirSync(backups, { recursive: true });
  await server.api.patch('/apis/harvesterhci.io/v1beta1/settings/backup-target', { value: JSON.stringify({ type: 'directory', endpoint: `file://${backups}` }) });
  for (const [name, memory] of Object.entries(running)) await have(server, machinesPath, guest(name, { memory }));
  for (const [name, memory] of Object.entries(stopped)) await have(server, machinesPath, guest(name, { running: false, cores: 2, memory }));
  const harvester = '/apis/harvesterhci.io/v1beta1/namespaces/default';
  for (const name of ['web-1', 'database']) {
    const source = { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name };
    for (const day of ['monday', 'tuesday']) {
      await have(server, `${harvester}/virtualmachinebackups`, { apiVersion: 'harvesterhci.io/v1beta1', kind: 'VirtualMachineBackup', metadata: { name: `${name}-${day}` }, spec: { type: 'backup', source } });
    }
  }
  for (const name of Object.keys(running)) {
    await expect.poll(async () => (await server.api.get<{ status?: { printableStatus?: string } }>(`${machinesPath}/${name}`)).status?.printableStatus, { timeout: 240_000 }).toBe('Running');
  }
}

test('the main screens', async ({ page, server }) => {
  await office(server);
  await page.goto('machines/default/database/console?kind=serial');
  const serial = new SerialConsole(page);
  await serial.logIn('root', guestPassword);
  await serial.type('clear; uname -srm; uptime; free -m; df -h /');
  await serial.shows(/vda2/);
  await picture(page, 'serial-console');

  await page.goto('machines/default/web-1/console');
  const screen = new Screen(page);
  await screen.connected();
  await picture(page, 'graphical-console');

  await page.goto('machines');
  await expect(page.getByRole('link', { name: 'web-1', exact: true })).toBeVisible();
  await expect.poll(() => page.getByRole('cell', { name: /^10\.\d+\./ }).count(), { timeout: 120_000 }).toBe(Object.keys(running).length);
  await picture(page, 'machines');

  await page.goto('machines/default/database');
  await expect(title(page, 'database')).toBeVisible();
  // Charts that begin a minute ago show more than those that begin now.
  await expect(page.locator('.uplot').first()).toBeVisible();
  await picture(page, 'machine');

  await page.goto('machines/new');
  await field(page, 'Name').fill('shop');
  await choose(page, 'Image', 'tiny');
  await page.getByRole('button', { name: /^Small/ }).click();
  await picture(page, 'create');

  await page.goto('backups');
  await expect(page.getByText('Ready', { exact: true })).toHaveCount(4, { timeout: 120_000 });
  await picture(page, 'backups');

  await page.goto('overview');
  await expect(page.locator('.uplot').first()).toBeVisible();
  await picture(page, 'dashboard');
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture(page, 'dashboard-dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto('machines');
  await expect(page.getByRole('link', { name: 'web-1', exact: true })).toBeVisible();
  await picture(page, 'phone');
});
