import { defineConfig } from '@playwright/test';
import { fileURLToPath } from 'node:url';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  testDir: here('.'),
  testMatch: process.env['CROFT_SCREENSHOTS'] ? 'screenshots.ts' : '*.spec.ts',
  outputDir: here('../test-results'),
  // Each file has a server of its own, and a guest that is emulated takes a whole processor.
  workers: 1,
  // A guest that is emulated on a busy machine takes its time; what should happen soon has its own, shorter limit.
  timeout: 240_000,
  expect: { timeout: Number(process.env['CROFT_TEST_PATIENCE_MS'] ?? 30_000) },
  forbidOnly: true,
  reporter: [['list']],
  use: {
    actionTimeout: Number(process.env['CROFT_TEST_PATIENCE_MS'] ?? 30_000),
    browserName: 'chromium',
    // The server's certificate is its own.
    ignoreHTTPSErrors: true,
    locale: 'en-GB',
    viewport: { width: 1280, height: 800 },
    screenshot: 'only-on-failure',
    trace: { mode: 'retain-on-failure', screenshots: false, sources: false },
    launchOptions: {
      executablePath: here('support/quiet-chromium'),
      args: [
        '--proxy-server=http://127.0.0.1:1080',
        '--proxy-bypass-list=<-loopback>',
        // Chromium's own walls need a user that is not root, which it is in its own network.
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
  },
});
