import type { Browser, CDPSession, Page } from '@playwright/test';
import { openMachines } from './machines.ts';

interface MemorySample {
  seconds: number;
  /** What JavaScript and the document hold after everything that nobody needs is thrown away. */
  bytes: number;
  nodes: number;
  /** How often a cell on the screen has changed since the start: the changes do arrive. */
  drawn: number;
}

declare global {
  interface Window {
    croftDrawn?: number;
  }
}

/** By then all that the page does here has been compiled, which takes some memory as well. */
const warmUpSeconds = 60;
const samples = 9;

/**
 * What the page holds while the list of machines is open and somebody else changes them all the time: after a minute, and
 * nine times in the seconds after that.
 */
export async function measureMemory(browser: Browser, count: number, seconds: number): Promise<MemorySample[]> {
  const { tab } = await openMachines(browser, count);
  await tab.evaluate(() => {
    window.croftDrawn = 0;
    const body = document.querySelector('[role=table]');
    const observer = new MutationObserver((changes) => (window.croftDrawn = (window.croftDrawn ?? 0) + changes.length));
    if (body) observer.observe(body, { subtree: true, characterData: true });
  });
  const session = await tab.context().newCDPSession(tab);
  const start = performance.now();
  const taken: MemorySample[] = [];
  for (let n = 0; n <= samples; n += 1) {
    const at = warmUpSeconds + (n * seconds) / samples;
    await tab.waitForTimeout(Math.max(0, at * 1000 - (performance.now() - start)));
    taken.push({ seconds: Math.round((performance.now() - start) / 1000), ...(await held(session)), drawn: await drawn(tab) });
  }
  await tab.context().close();
  return taken;
}

/** The least of three: what a change on its way holds just then is not kept. */
async function held(session: CDPSession): Promise<{ bytes: number; nodes: number }> {
  let bytes = Infinity;
  for (let turn = 0; turn < 3; turn += 1) {
    await session.send('HeapProfiler.collectGarbage');
    const heap = await session.send('Runtime.getHeapUsage');
    bytes = Math.min(bytes, heap.usedSize + heap.embedderHeapUsedSize + heap.backingStorageSize);
  }
  const { nodes } = await session.send('Memory.getDOMCounters');
  return { bytes, nodes };
}

function drawn(tab: Page): Promise<number> {
  return tab.evaluate(() => window.croftDrawn ?? 0);
}
