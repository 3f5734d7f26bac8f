import type { Browser, Page } from '@playwright/test';
import { takenTimes, untilShown, watchInputs } from './inputs.ts';
import { openMachines } from './machines.ts';

interface ListFigures {
  openedMs: number;
  keysMs: number[];
  wheelMs: number[];
}

const rounds = 6;
const mostSteps = 20;
/** More than the rows that are kept ready beyond the edge. */
const stepPixels = 700;
/** A quick typist. */
const keyPauseMs = 80;
/** After such a pause the page writes the search into its address. */
const wordPauseMs = 400;

/** Scrolls through the list of machines and searches in it. */
export async function measureList(browser: Browser, count: number): Promise<ListFigures> {
  const { tab, openedMs } = await openMachines(browser, count);
  await watchInputs(tab);
  for (let round = 0; round < rounds; round += 1) {
    await scroll(tab);
    // Digits of the machines' names: each of them leaves fewer, as long as there are more than a few.
    const word = ['123', '456', '789'][round % 3] ?? '';
    await search(tab, word.slice(0, Math.max(1, Math.log10(count) - 1)));
  }
  const { keys, wheel } = await takenTimes(tab);
  await tab.context().close();
  return { openedMs, keysMs: keys, wheelMs: wheel };
}

/** Down and back again, but not beyond the end: there nothing moves. */
async function scroll(tab: Page): Promise<void> {
  const table = tab.locator('[role=region]:has([role=table])');
  await table.hover();
  const hidden = await table.evaluate((element) => element.scrollHeight - element.clientHeight);
  const steps = Math.min(mostSteps, Math.floor(hidden / stepPixels));
  for (const pixels of [stepPixels, -stepPixels]) {
    for (let step = 0; step < steps; step += 1) await untilShown(tab, 'wheel', () => tab.mouse.wheel(0, pixels));
  }
}

async function search(tab: Page, word: string): Promise<void> {
  await tab.focus('[role=toolbar] input[type=search]');
  for (const key of word) await press(tab, key);
  await tab.waitForTimeout(wordPauseMs);
  for (const _ of word) await press(tab, 'Backspace');
  await tab.waitForTimeout(wordPauseMs);
}

async function press(tab: Page, key: string): Promise<void> {
  await untilShown(tab, 'keys', () => tab.keyboard.press(key));
  await tab.waitForTimeout(keyPauseMs);
}
