import type { Browser, Page } from '@playwright/test';
import { page, signIn, stranger } from './browser.ts';

const status = '[role=toolbar] [role=status]';

/** Opens the list of virtual machines and waits until all of them are in it; `openedMs` is how long that took. */
export async function openMachines(browser: Browser, count: number): Promise<{ tab: Page; openedMs: number }> {
  const context = await stranger(browser);
  const tab = await context.newPage();
  // The column in which the changes can be seen.
  await tab.addInitScript(() => localStorage.setItem('croft.columns.machines', '{"labels":true}'));
  await tab.goto(`${page.url}/dashboard/machines`);
  const start = performance.now();
  await signIn(tab);
  await tab.waitForFunction(
    ({ selector, wanted }) => Number(document.querySelector(selector)?.textContent.replace(/\D/g, '')) === wanted,
    { selector: status, wanted: count },
    { timeout: 120_000 },
  );
  const openedMs = performance.now() - start;
  // What is done once after a start is not what is measured here.
  await tab.waitForTimeout(2_000);
  return { tab, openedMs };
}
