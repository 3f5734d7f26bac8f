import { row } from './support/fields.ts';
import { empty, machinesPath } from './support/guests.ts';
import { adminPassword, expect, test } from './support/test.ts';

// A server that runs nothing, so that only its list is long.
test.use({ serverOptions: { password: adminPassword, node: false } });

const count = Number(process.env['CROFT_TEST_MACHINES'] ?? 10_000);
const atOnce = 16;
/** Those with one of seven labels. */
const some = Math.ceil((count - 3) / 7);
const text = (amount: number) => new Intl.NumberFormat('en').format(amount);

const nameOf = (index: number) => `vm-${String(index).padStart(5, '0')}`;

test.beforeAll(async ({ server }) => {
  test.setTimeout(600_000);
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const index = next;
      next += 1;
      await server.api.create(machinesPath, empty(nameOf(index), { labels: { group: `g${index % 7}` } }));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
});

test('thousands of machines are counted, found, sorted, filtered, scrolled and selected', async ({ page }) => {
  const last = nameOf(count - 1);
  await page.goto('machines');
  const status = page.getByRole('toolbar').getByRole('status');
  await expect(status).toHaveText(`${text(count)} rows`);
  // Only what is in sight is drawn.
  expect(await page.getByRole('row').count()).toBeLessThan(100);

  await test.step('searched', async () => {
    await page.getByRole('searchbox', { name: 'Search' }).fill(last);
    await expect(row(page, last)).toBeVisible();
    await expect(status).toHaveText(`1 of ${text(count)}`);
    // A link shows the same.
    await expect(page).toHaveURL(new RegExp(`q=${last}`));
    await page.getByRole('button', { name: 'Clear the search' }).click();
  });

  await test.step('sorted', async () => {
    await expect(row(page, nameOf(0))).toBeVisible();
    await page.getByRole('button', { name: 'Sort by Name', exact: true }).click();
    await page.getByRole('button', { name: 'Sort by Name', exact: true }).click();
    await expect(row(page, last)).toBeVisible();
    await expect(row(page, nameOf(0))).toHaveCount(0);
  });

  await test.step('scrolled to the end', async () => {
    await page.getByRole('region', { name: 'machines' }).focus();
    await page.keyboard.press('End');
    await expect(row(page, nameOf(0))).toBeVisible();
  });

  await test.step('filtered', async () => {
    await page.getByRole('button', { name: 'Label' }).click();
    await page.getByRole('checkbox', { name: /^group=g3 / }).check();
    await page.keyboard.press('Escape');
    await expect(status).toHaveText(`${text(some)} of ${text(count)}`);
  });

  await test.step('selected, all that match', async () => {
    await page.getByRole('checkbox', { name: 'Select all' }).check();
    await expect(page.getByText(`${text(some)} selected`)).toBeVisible();
    await expect(page.getByRole('toolbar').getByRole('button', { name: 'Start' })).toBeEnabled();
    await page.getByRole('button', { name: 'Clear the selection' }).click();
  });
});

test('a change in a long list is shown as quickly as in a short one', async ({ page, server }) => {
  const name = nameOf(Math.floor(count / 2));
  await page.goto(`machines?q=${name}`);
  await expect(row(page, name).getByText('Stopped', { exact: true })).toBeVisible();
  await server.api.delete(`${machinesPath}/${name}`);
  await expect(row(page, name)).toHaveCount(0, { timeout: 5_000 });
});
