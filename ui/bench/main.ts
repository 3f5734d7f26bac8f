import { withBrowser } from './browser.ts';
import { measureList } from './list.ts';
import { measureLoad } from './load.ts';
import { measureMemory } from './memory.ts';

/**
 * Measures the page in a browser and prints what it saw as one line of JSON. `make bench` starts it: the server and its
 * objects must be there already.
 */
const [measure, ...rest] = process.argv.slice(2);
const [first = 0, second = 0] = rest.map(Number);

const figures = await withBrowser<object>((browser) => {
  if (measure === 'load') return measureLoad(browser, first);
  if (measure === 'list') return measureList(browser, first);
  if (measure === 'memory') return measureMemory(browser, first, second);
  throw new Error('usage: bench load RUNS | list MACHINES | memory MACHINES SECONDS');
});
process.stdout.write(`${JSON.stringify(figures)}\n`);
