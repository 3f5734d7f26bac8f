import { test as base, expect, type BrowserContext, type Page } from '@playwright/test';
import { Line } from './line.ts';
import { Server, type ServerOptions } from './server.ts';
import { cookiesOf, type Session } from './session.ts';
import { Watcher } from './watcher.ts';

export { expect };

export const adminPassword = 'correct horse battery';

interface WorkerFixtures {
  /** How the server of a file is started; files that say the same share one. */
  serverOptions: ServerOptions;
  server: Server;
  /** The line between browser and server, to be cut. */
  line: Line;
  /** The administrator, signed in. */
  adminSession: Session;
}

interface TestFixtures {
  /** Notes what no page may do, and fails the test at its end if one did. */
  watcher: Watcher;
  /** Another browser, with its own cookies. */
  newBrowser: (session?: Session) => Promise<Page>;
}

export const test = base.extend<TestFixtures, WorkerFixtures>({
  serverOptions: [{ password: adminPassword, node: true }, { option: true, scope: 'worker' }],
  launchOptions: [
    async ({ launchOptions, line }, give) => give({ ...launchOptions, env: { ...process.env, CROFT_LINE: line.socket } }),
    { scope: 'worker' },
  ],
  line: [
    // Playwright wants to see what a fixture needs, and this needs nothing.
    // oxlint-disable-next-line eslint/no-empty-pattern
    async ({}, give) => {
      const line = await Line.start();
      await give(line);
      line.stop();
    },
    { scope: 'worker' },
  ],
  server: [
    async ({ serverOptions }, give) => {
      const server = await Server.start(serverOptions);
      await give(server);
      await server.stop();
    },
    { scope: 'worker', timeout: 120_000 },
  ],
  adminSession: [async ({ server }, give) => give(await cookiesOf(server.api, 'admin', adminPassword)), { scope: 'worker' }],
  baseURL: async ({ server }, give) => give(`${server.url}/dashboard/`),
  storageState: async ({ adminSession }, give) => give(adminSession),
  watcher: [
    async ({ server, context }, give) => {
      const watcher = new Watcher(server.url);
      watcher.watch(context);
      await give(watcher);
      expect(watcher.faults, 'what no page may do').toEqual([]);
    },
    { auto: true },
  ],
  newBrowser: async ({ browser, baseURL, watcher }, give) => {
    const contexts: BrowserContext[] = [];
    await give(async (session = { cookies: [], origins: [] }) => {
      const context = await browser.newContext({ baseURL: baseURL ?? '', storageState: session, ignoreHTTPSErrors: true });
      contexts.push(context);
      watcher.watch(context);
      return context.newPage();
    });
    await Promise.all(contexts.map((context) => context.close()));
  },
});
