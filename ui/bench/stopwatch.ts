import type { Page } from '@playwright/test';

export type ScreenName = 'signIn' | 'dashboard';

declare global {
  interface Window {
    /** When the screen was there to be used, and what kept the page from answering, in ms since the navigation. */
    croftWatch?: { shownAt?: number; busyUntil: number };
  }
}

/** How long nothing may keep the page busy after it looks usable, for it to count as usable. */
const calmMs = 2_000;

/** Has each page that this tab opens from now on look out for its first screen. */
export async function watchFor(tab: Page, screen: ScreenName): Promise<void> {
  await tab.addInitScript(lookOut, screen);
}

/**
 * Time from the navigation to the screen being shown with all its data, or to the end of the last long task (over 50 ms)
 * that followed: until then, a click would have waited.
 */
export async function interactiveAfter(tab: Page): Promise<number> {
  await tab.waitForFunction(() => window.croftWatch?.shownAt !== undefined, undefined, { polling: 100, timeout: 60_000 });
  await tab.waitForTimeout(calmMs);
  const watch = await tab.evaluate(() => window.croftWatch);
  return Math.max(watch?.shownAt ?? Infinity, watch?.busyUntil ?? Infinity);
}

/** Runs in the page, before its own scripts; it must not use anything from outside. */
function lookOut(screen: 'signIn' | 'dashboard'): void {
  const watch: NonNullable<Window['croftWatch']> = { busyUntil: 0 };
  window.croftWatch = watch;
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) watch.busyUntil = Math.max(watch.busyUntil, task.startTime + task.duration);
  }).observe({ type: 'longtask', buffered: true });

  const content = () => document.querySelector('#content');
  // The one host is counted, its usage is known, and its charts are drawn.
  const hasData = () => {
    const isCounted = content()?.querySelector('a[href$="/hosts"]')?.textContent.includes('1 / 1') ?? false;
    return isCounted && /\d\s?%/.test(content()?.textContent ?? '') && content()?.querySelector('.uplot canvas') !== null;
  };
  const hasForm = () => document.querySelector('input[name=username]') !== null && document.querySelector('button[type=submit]:enabled') !== null;
  const isShown = screen === 'signIn' ? hasForm : hasData;

  const look = () => {
    if (!isShown()) {
      requestAnimationFrame(look);
      return;
    }
    // What is found before a frame is drawn is on the screen when the next message is handled.
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => (watch.shownAt = performance.now());
    port2.postMessage(null);
  };
  requestAnimationFrame(look);
}
