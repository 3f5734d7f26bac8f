import type { Browser, BrowserContext, Page } from '@playwright/test';
import { chromium } from '@playwright/test';

/** Where the page is, and who looks at it. */
export const page = {
  url: required('CROFT_BENCH_URL'),
  /** The same files, served by somebody else. */
  rivalUrl: process.env['CROFT_BENCH_RIVAL_URL'],
  password: required('CROFT_BENCH_PASSWORD'),
};

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

const quiet = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
/** Each step of the wheel is then one frame that has to be ready, not ten that are eased into. */
const abrupt = ['--disable-smooth-scrolling'];

export async function withBrowser<R>(measure: (browser: Browser) => Promise<R>): Promise<R> {
  const asRoot = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: [...quiet, ...abrupt, ...asRoot] });
  try {
    return await measure(browser);
  } finally {
    await browser.close();
  }
}

/** A browser that was never here: its cache is empty, and there is no connection yet. */
export function stranger(browser: Browser, state?: Awaited<ReturnType<BrowserContext['storageState']>>): Promise<BrowserContext> {
  return browser.newContext({ ignoreHTTPSErrors: true, locale: 'en-US', viewport: { width: 1440, height: 900 }, ...(state && { storageState: state }) });
}

export async function signIn(tab: Page): Promise<void> {
  await tab.fill('input[name=username]', 'admin');
  await tab.fill('input[name=password]', page.password);
  await tab.click('button[type=submit]');
}
