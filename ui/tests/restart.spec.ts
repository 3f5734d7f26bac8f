import { title } from './support/fields.ts';
import { empty, have, machinesPath } from './support/guests.ts';
import { expect, test } from './support/test.ts';

test('the page survives a server that dies and comes back', async ({ page, server, watcher }) => {
  await have(server, machinesPath, empty('before'));
  await page.goto('machines');
  await expect(page.getByRole('link', { name: 'before', exact: true })).toBeVisible();
  await expect(page.getByRole('status', { name: 'Live' })).toBeVisible();
  // Marks this very page: a reload would lose it.
  await page.evaluate(() => Object.assign(window, { sameAsBefore: true }));

  watcher.endure();
  await server.kill();
  await expect(page.getByRole('status', { name: 'Reconnecting' })).toBeVisible();
  // What was known stays to be read.
  await expect(page.getByRole('link', { name: 'before', exact: true })).toBeVisible();

  await server.restart();
  await expect(page.getByRole('status', { name: 'Live' })).toBeVisible();
  await have(server, machinesPath, empty('after'));
  await expect(page.getByRole('link', { name: 'after', exact: true })).toBeVisible();
  expect(await page.evaluate(() => 'sameAsBefore' in window)).toBe(true);
});

test('a page that is opened while the server is away waits for it', async ({ page, server, watcher }) => {
  await page.goto('machines');
  await expect(title(page, 'Virtual machines')).toBeVisible();
  watcher.endure();
  // The browser has the page already; what it asks the API for is cut off, as while a server starts.
  await page.route(/\/(api|apis|v1|v3)\//, (route) => route.abort());
  await page.reload();
  await expect(page.getByText('The server does not answer')).toBeVisible();
  await page.unroute(/\/(api|apis|v1|v3)\//);
  await expect(title(page, 'Virtual machines')).toBeVisible();
  await have(server, machinesPath, empty('later'));
  await expect(page.getByRole('link', { name: 'later', exact: true })).toBeVisible();
});
