import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import type { VirtualMachineImage } from '../src/api/harvester.ts';
import { field, row } from './support/fields.ts';
import { imagesPath } from './support/guests.ts';
import { guestImage } from './support/program.ts';
import type { Server } from './support/server.ts';
import { expect, test } from './support/test.ts';

const file = readFileSync(guestImage());
const mebibyte = 2 ** 20;

/** Uploads the guest through the page, with its checksum, under this name. */
async function start(page: Page, name: string): Promise<void> {
  await page.goto('images/new');
  await page.getByText('Upload a file').click();
  await field(page, 'File').setInputFiles(guestImage());
  await field(page, 'Name').fill(name);
  await field(page, 'Checksum').fill(createHash('sha512').update(file).digest('hex'));
  await page.getByRole('button', { name: 'Start upload' }).click();
  await expect(page.getByRole('progressbar', { name: 'Progress' }).first()).toBeVisible();
}

/** On this machine an upload would be over before anything can happen to it. */
async function slow(page: Page): Promise<() => Promise<unknown>> {
  const browser = await page.context().newCDPSession(page);
  const limit = (uploadThroughput: number) => browser.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await browser.send('Network.enable');
  await limit(4 * mebibyte);
  return () => limit(-1);
}

async function imageOf(server: Server, displayName: string): Promise<VirtualMachineImage> {
  const { items } = await server.api.get<{ items: VirtualMachineImage[] }>(imagesPath);
  const found = items.find(({ spec }) => spec.displayName === displayName);
  if (!found) throw new Error(`no image ${displayName}`);
  return found;
}

/** How many bytes the server has kept. */
async function kept(server: Server, displayName: string): Promise<number> {
  const { metadata } = await imageOf(server, displayName);
  const { json } = await server.api.send('GET', `/croft/v1/images/default/${metadata.name}/upload`);
  return (json as { offset?: number } | undefined)?.offset ?? 0;
}

test('an upload whose connection is cut, and whose server dies, goes on by itself to the right end', async ({ page, server, line, watcher }) => {
  watcher.endure();
  const hurry = await slow(page);
  await start(page, 'cut');

  await test.step('the line is cut half-way', async () => {
    await expect.poll(() => kept(server, 'cut')).toBeGreaterThan(2 * mebibyte);
    line.cut();
    await expect(page.getByRole('status', { name: 'Reconnecting' })).toBeVisible();
    expect(await kept(server, 'cut')).toBeLessThan(file.length);
    line.mend();
  });

  await test.step('then the server is killed and started again', async () => {
    const before = await kept(server, 'cut');
    await expect.poll(() => kept(server, 'cut')).toBeGreaterThan(before);
    await server.kill();
    await server.restart();
    await hurry();
  });

  await expect(row(page, 'cut').getByText('Ready')).toBeVisible({ timeout: 90_000 });
  const { status } = await imageOf(server, 'cut');
  // The server has compared the checksum of what came with that of the file.
  expect(status?.size).toBe(file.length);
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('an upload is paused and resumed, also from another screen', async ({ page, server }) => {
  const hurry = await slow(page);
  await start(page, 'halted');
  await expect.poll(() => kept(server, 'halted')).toBeGreaterThan(mebibyte);
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await expect(page.getByText('Paused', { exact: true })).toBeVisible();
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.getByRole('link', { name: 'Images', exact: true }).click();
  await hurry();
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await expect(row(page, 'halted').getByText('Ready')).toBeVisible({ timeout: 90_000 });
  expect((await imageOf(server, 'halted')).status?.size).toBe(file.length);
});

test('a file whose checksum is another is refused and said so', async ({ page }) => {
  await page.goto('images/new');
  await page.getByText('Upload a file').click();
  await field(page, 'File').setInputFiles({ name: 'small.img', mimeType: 'application/octet-stream', buffer: Buffer.alloc(mebibyte, 1) });
  await field(page, 'Checksum').fill('0'.repeat(128));
  await page.getByRole('button', { name: 'Start upload' }).click();
  await expect(page.getByRole('alert')).toContainText(/checksum|sha/i);
});
