import type { Browser } from '@playwright/test';
import { page, signIn, stranger } from './browser.ts';
import { interactiveAfter, watchFor } from './stopwatch.ts';
import type { Wire } from './wire.ts';
import { countBytes } from './wire.ts';

interface LoadFigures {
  signInMs: number[];
  dashboardMs: number[];
  /** The sign-in page and, after signing in, the dashboard, all in all. */
  wire: Wire[];
  rivalSignInMs: number[];
}

/** The first load, each time by a browser that was never here. */
export async function measureLoad(browser: Browser, runs: number): Promise<LoadFigures> {
  const figures: LoadFigures = { signInMs: [], dashboardMs: [], wire: [], rivalSignInMs: [] };
  // The first one warms what only a browser that has just started must do.
  for (let run = 0; run <= runs; run += 1) {
    const whole = await signInToDashboard(browser);
    const dashboardMs = await straightToDashboard(browser, whole.session);
    // In turns, so that what else the machine does hits both.
    const rivalMs = page.rivalUrl ? await signInScreen(browser, page.rivalUrl) : undefined;
    if (run === 0) continue;
    figures.signInMs.push(whole.signInMs);
    figures.dashboardMs.push(dashboardMs);
    figures.wire.push(whole.wire);
    if (rivalMs !== undefined) figures.rivalSignInMs.push(rivalMs);
  }
  return figures;
}

/** As a person comes: the sign-in page, the password, the dashboard. */
async function signInToDashboard(browser: Browser) {
  const context = await stranger(browser);
  const tab = await context.newPage();
  const wire = await countBytes(tab);
  await watchFor(tab, 'signIn');
  await tab.goto(`${page.url}/dashboard/`);
  const signInMs = await interactiveAfter(tab);
  await signIn(tab);
  await tab.waitForSelector('#content .uplot canvas');
  await tab.waitForLoadState('load');
  // Whatever is still on its way counts too.
  await tab.waitForTimeout(1_000);
  const session = await context.storageState();
  const total = wire();
  await context.close();
  return { signInMs, wire: total, session };
}

/** As one comes back who is still signed in, but has nothing in the cache: everything at once. */
async function straightToDashboard(browser: Browser, session: Parameters<typeof stranger>[1]): Promise<number> {
  const context = await stranger(browser, session);
  const tab = await context.newPage();
  await watchFor(tab, 'dashboard');
  await tab.goto(`${page.url}/dashboard/`);
  const took = await interactiveAfter(tab);
  await context.close();
  return took;
}

async function signInScreen(browser: Browser, url: string): Promise<number> {
  const context = await stranger(browser);
  const tab = await context.newPage();
  await watchFor(tab, 'signIn');
  await tab.goto(`${url}/dashboard/`);
  const took = await interactiveAfter(tab);
  await context.close();
  return took;
}
