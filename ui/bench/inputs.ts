import type { Page } from '@playwright/test';

declare global {
  interface Window {
    /** The time of each input until its result was on the screen, in ms; and where the table was before the last of them. */
    croftInputs?: { keys: number[]; wheel: number[]; top: number };
  }
}

/** Has the page take the time of each key in the search field and each step of the wheel over the table. */
export async function watchInputs(tab: Page): Promise<void> {
  await tab.evaluate(() => {
    const samples: NonNullable<Window['croftInputs']> = { keys: [], wheel: [], top: 0 };
    window.croftInputs = samples;
    const scroller = () => document.querySelector('[role=region]:has([role=table])');
    const count = () => document.querySelector('[role=toolbar] [role=status]')?.textContent;

    // An input begins when the browser got it, which may be long before the page hears of it. It ends with the frame that
    // shows its result: what is found before a frame is drawn is on the screen when the next message is handled.
    const measure = (into: number[], since: number, isDone: () => boolean) => {
      const look = () => {
        if (!isDone()) {
          requestAnimationFrame(look);
          return;
        }
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => into.push(performance.now() - since);
        port2.postMessage(null);
      };
      requestAnimationFrame(look);
    };

    // Each key that is typed here changes how many rows are found; number and rows are drawn together.
    document.addEventListener('keydown', (event) => {
      const before = count();
      measure(samples.keys, event.timeStamp, () => count() !== before);
    }, { capture: true });

    // Scrolled, and with rows from the first to the last pixel: an empty table is no result.
    const isRowAt = (y: number) => {
      const box = scroller()?.getBoundingClientRect();
      return box !== undefined && Boolean(document.elementFromPoint(box.left + 60, y < 0 ? box.bottom + y : box.top + y)?.closest('[role=row]'));
    };
    document.addEventListener('wheel', (event) => {
      measure(samples.wheel, event.timeStamp, () => scroller()?.scrollTop !== samples.top && isRowAt(60) && isRowAt(-20));
    }, { capture: true, passive: true });
  });
}

/** Does something and waits until the page has shown what came of it. */
export async function untilShown(tab: Page, kind: 'keys' | 'wheel', act: () => Promise<void>): Promise<void> {
  const before = await tab.evaluate((name) => {
    const inputs = window.croftInputs;
    if (!inputs) return 0;
    // The table may have moved before the page hears of the wheel.
    inputs.top = document.querySelector('[role=region]:has([role=table])')?.scrollTop ?? 0;
    return inputs[name].length;
  }, kind);
  await act();
  await tab.waitForFunction(({ name, seen }) => (window.croftInputs?.[name].length ?? 0) > seen, { name: kind, seen: before }, { timeout: 30_000 });
}

export async function takenTimes(tab: Page): Promise<{ keys: number[]; wheel: number[] }> {
  return (await tab.evaluate(() => window.croftInputs)) ?? { keys: [], wheel: [] };
}
