import type { BrowserContext, Page } from '@playwright/test';

/** What a page of ours must never do, whatever a test is about. */
export class Watcher {
  readonly faults: string[] = [];
  private enduring = false;
  private expected: RegExp | null = null;

  constructor(private readonly url: string) {}

  watch(context: BrowserContext): void {
    context.pages().forEach((page) => this.follow(page));
    context.on('page', (page) => this.follow(page));
    context.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(`${this.url}/`) && !/^(data|blob):/.test(url)) this.faults.push(`a request left the server: ${url}`);
    });
    context.on('response', (response) => {
      if (response.status() >= 500 && !this.enduring) this.faults.push(`${response.status()} ${response.request().method()} ${response.url()}`);
    });
  }

  /** From here on the server may be away, and what fails for that reason is no fault. */
  endure(): void {
    this.enduring = true;
  }

  /** What a test provokes on purpose may be logged. */
  expect(logged: RegExp): void {
    this.expected = logged;
  }

  private follow(page: Page): void {
    page.on('pageerror', (error) => this.faults.push(`an error in the page: ${error.stack ?? error.message}`));
    page.on('console', (message) => {
      // A refusal that the page shows to its user is also logged by the browser, with the request.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) this.log(message.text(), page.url());
    });
  }

  private log(text: string, at: string): void {
    if (this.enduring && /WebSocket|net::ERR/.test(text)) return;
    if (this.expected?.test(text)) return;
    this.faults.push(`logged by the page at ${at}: ${text}`);
  }
}
