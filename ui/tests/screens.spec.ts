import { AxeBuilder } from '@axe-core/playwright';
import type { Page } from '@playwright/test';
import { title } from './support/fields.ts';
import { empty, guest, have, haveImage, machinesPath } from './support/guests.ts';
import { expect, test } from './support/test.ts';

const phone = { width: 390, height: 844 };

/** The screen has its title and nothing on it is still on its way. */
async function settled(page: Page): Promise<void> {
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
  await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
  await expect(page.getByText('This part of the page has failed')).toHaveCount(0);
}

/** What axe calls serious or critical, each with where it is. */
async function barriers(page: Page): Promise<string[]> {
  // What fades in is pale for a moment.
  await page.waitForFunction(() => document.getAnimations().every((each) => each.playState !== 'running' || each.effect?.getTiming().iterations === Infinity));
  // One frame, and no report of all that is well: it takes a third of the time.
  const { violations } = await new AxeBuilder({ page }).setLegacyMode(true).options({ resultTypes: ['violations'] }).analyze();
  const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  // One example of each is enough to mend them all.
  return grave.map(({ id, nodes }) => `${new URL(page.url()).pathname}: ${id} (${nodes.length}): ${nodes[0]?.target.join(' ') ?? ''}: ${nodes[0]?.failureSummary ?? ''}`);
}

async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  expect(over, `${page.url()} is wider than its window`).toBeLessThanOrEqual(0);
}

async function areas(page: Page): Promise<string[]> {
  await page.goto('overview');
  const links = page.getByRole('navigation', { name: 'Navigation' }).getByRole('link');
  await expect(links.first()).toBeVisible();
  return links.evaluateAll((found) => found.map((link) => (link as HTMLAnchorElement).pathname));
}

test.beforeAll(async ({ server }) => {
  await haveImage(server);
  await have(server, machinesPath, guest('seen'));
  await have(server, machinesPath, empty('seen-off', { labels: { tier: 'web' } }));
});

test('every area of the navigation opens without an error and without a barrier', async ({ page }) => {
  const found = await areas(page);
  expect(found.length).toBeGreaterThan(15);
  const grave: string[] = [];
  for (const path of found) {
    await page.locator(`nav a[href="${path}"]`).click();
    await expect(page).toHaveURL(new RegExp(`${path}$`));
    await settled(page);
    await expect(page).toHaveTitle(/ – Croft$/);
    grave.push(...(await barriers(page)));
  }
  expect(grave).toEqual([]);
});

test('every screen behind the areas opens by its own address', async ({ page, server }) => {
  const { items } = await server.api.get<{ items: { metadata: { name: string } }[] }>('/api/v1/nodes');
  const host = items[0]?.metadata.name ?? '';
  const machine = ['', '/console', '/disks', '/networks', '/cloudInit', '/snapshots', '/backups', '/schedules', '/events', '/yaml'];
  const paths = [
    ...machine.map((tab) => `machines/default/seen${tab}`),
    'machines/new',
    'machines/new?from=template',
    'machines/new?from=yaml',
    'images/new',
    'images/default/tiny',
    'images/default/tiny/yaml',
    'templates/new',
    'cloud-configs/new',
    'volumes/default/seen-root',
    'volume-snapshots',
    'restores',
    'backup-volumes',
    'backup-target',
    'storage-classes/new',
    'storage-classes/longhorn-tiny',
    'cluster-networks/mgmt',
    'namespaces/default',
    'namespaces/default/access',
    'access/grants',
    'access/roles',
    'access/tokens',
    'access/users/admin',
    'access/cluster-roles/view',
    'settings/log-level',
    'settings/log-level/yaml',
    'settings/http-proxy',
    'addons/cattle-monitoring-system/rancher-monitoring',
    'explorer/core/configmaps',
    'explorer/core/configmaps/new',
    'explorer/core/namespaces/_/default',
    'explorer/kubevirt.io/virtualmachines',
    ...['', '/disks', '/links', '/machines', '/yaml'].map((tab) => `hosts/${host}${tab}`),
  ];
  const grave: string[] = [];
  for (const path of paths) {
    await page.goto(path);
    await settled(page);
    await expect(page.getByText('There is nothing at this address'), path).toHaveCount(0);
    await expect(page.getByText(/ is not there$/), path).toHaveCount(0);
    grave.push(...(await barriers(page)));
  }
  expect(grave).toEqual([]);
});

test('what is not there is said, in its place', async ({ page }) => {
  await page.goto('machines/default/never-was');
  await expect(page.getByText('never-was is not there')).toBeVisible();
  await page.goto('no/such/place');
  await expect(page.getByText('There is nothing at this address')).toBeVisible();
});

test('the dark page has no barriers either', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'dark' });
  const grave: string[] = [];
  for (const path of ['overview', 'machines', 'machines/default/seen', 'machines/new', 'images', 'settings', 'backup-target', 'machines/default/seen/yaml', 'access']) {
    await page.goto(path);
    await settled(page);
    await expect(page.locator('html')).toHaveAttribute('data-mantine-color-scheme', 'dark');
    grave.push(...(await barriers(page)));
  }
  expect(grave).toEqual([]);
});

test('on a phone no screen is wider than the phone', async ({ page }) => {
  const found = await areas(page);
  await page.setViewportSize(phone);
  for (const path of [...found, 'machines/default/seen', 'machines/default/seen/disks', 'machines/new', 'images/new', 'backup-target', 'machines/default/seen/yaml']) {
    await page.goto(path);
    await settled(page);
    await expectNoSidewaysScroll(page);
  }
});

test('on a phone the navigation is behind a button, and nothing is a barrier', async ({ page }) => {
  await page.setViewportSize(phone);
  await page.goto('overview');
  await settled(page);
  const link = page.getByRole('navigation', { name: 'Navigation' }).getByRole('link', { name: 'Virtual machines' });
  await expect(link).not.toBeInViewport();
  await page.getByRole('button', { name: 'Show or hide the navigation' }).click();
  await link.click();
  await expect(title(page, 'Virtual machines')).toBeVisible();
  await expect(link).not.toBeInViewport();
  await expect(page.getByRole('link', { name: 'seen', exact: true })).toBeVisible();
  expect(await barriers(page)).toEqual([]);
});

test('everything can be reached by keyboard', async ({ page }) => {
  await page.goto('machines');
  await settled(page);
  await page.keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to the content' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.locator('#content')).toBeFocused();
  await page.getByRole('button', { name: 'Actions for seen-off' }).focus();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('menuitem', { name: 'Start', exact: true })).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByRole('menuitem', { name: 'Start', exact: true })).toBeHidden();
});

test('what can be done with a row is in sight, however narrow the window', async ({ page }) => {
  for (const width of [1280, 900, 390]) {
    await page.setViewportSize({ width, height: 800 });
    // Alone in the list, so that only the width can hide it.
    await page.goto('machines?q=seen-off');
    await expect(page.getByRole('button', { name: 'Actions for seen-off' })).toBeInViewport({ ratio: 1 });
  }
});
