import type { Locator, Page } from '@playwright/test';
import { choose, title } from './support/fields.ts';
import { adminPassword, expect, test } from './support/test.ts';

test.use({ serverOptions: { password: adminPassword, node: false } });

const maps = '/api/v1/namespaces/default/configmaps';

/** The entries that speak of an object. */
function entries(page: Page, name: string): Locator {
  return page.getByRole('row').filter({ hasText: `default/${name}` });
}

test('the audit log is searched for what, who and how it ended', async ({ page, server }) => {
  const map = (name: string) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });
  for (const name of ['sought', 'other']) await server.api.create(maps, map(name));
  const again = await server.api.send('POST', maps, map('sought'));
  expect(again.status).toBe(409);
  await server.api.delete(`${maps}/other`);

  await page.goto('audit');
  await expect(title(page, 'Audit log')).toBeVisible();
  await expect(entries(page, 'sought')).toHaveCount(2);
  await expect(entries(page, 'other')).toHaveCount(2);

  const search = page.getByRole('search', { name: 'Filter' });
  await search.getByRole('searchbox').fill('sought');
  await expect(entries(page, 'other')).toHaveCount(0);
  await expect(entries(page, 'sought')).toHaveCount(2);
  await expect(page).toHaveURL(/text=sought/);

  await search.getByRole('switch', { name: 'Only failures' }).check();
  await expect(entries(page, 'sought')).toHaveCount(1);
  await expect(entries(page, 'sought')).toContainText('409');

  // A link shows the same.
  await page.reload();
  await expect(entries(page, 'sought')).toHaveCount(1);

  await search.getByRole('button', { name: 'Clear filters' }).click();
  await expect(entries(page, 'other')).toHaveCount(2);
  await choose(search, 'What', 'Deleted');
  await expect(entries(page, 'other')).toHaveCount(1);
  await expect(entries(page, 'sought')).toHaveCount(0);

  await search.getByLabel('Who', { exact: true }).fill('nobody-of-that-name');
  await expect(page.getByText('Nothing matches')).toBeVisible();
});
