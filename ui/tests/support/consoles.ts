import { expect, type Locator, type Page } from '@playwright/test';

/** How long a guest that is emulated may take to boot or to answer. */
export const bootMs = 200_000;

/** The serial console of the page, used as a person would. */
export class SerialConsole {
  private count = 0;
  private readonly rows: Locator;

  constructor(private readonly page: Page) {
    this.rows = page.locator('[data-console=serial] .xterm-rows');
  }

  async text(): Promise<string> {
    // Spaces of a terminal do not break.
    return (await this.rows.innerText()).replaceAll('\u00a0', ' ');
  }

  async shows(what: string | RegExp, timeout = bootMs): Promise<void> {
    await expect.poll(() => this.text(), { timeout }).toMatch(what);
  }

  async type(line: string): Promise<void> {
    await this.page.locator('[data-console=serial]').click();
    await this.page.keyboard.type(`${line}\n`);
  }

  /** Answers the prompts for name and password. */
  async logIn(user: string, password: string): Promise<void> {
    await this.shows(/login: *$/m);
    // A guest that is busy may lose patience with whoever types, and asks again.
    await expect(async () => {
      if (/login: *\s*$/.test(await this.text())) await this.type(user);
      await this.shows(/[Pp]assword: *\s*$/, 20_000);
      await this.type(password);
      await this.shows(/# *\s*$/, 30_000);
    }).toPass({ timeout: bootMs });
  }

  /** What a command prints. */
  async run(line: string): Promise<string> {
    this.count += 1;
    const [begin, end] = [`<${this.count}`, `${this.count}>`];
    // The marks are split where they are typed, so that the echo of the line is not taken for them.
    await this.type(`clear; echo "<""${this.count}"; ${line}; echo; echo "${this.count}"">"`);
    let printed = '';
    await expect
      .poll(async () => {
        const text = await this.text();
        const at = text.indexOf(`${begin}\n`);
        const stop = text.indexOf(`\n${end}`, at);
        printed = at < 0 || stop < 0 ? '' : text.slice(at + begin.length, stop).trim();
        return at >= 0 && stop >= 0;
      }, { timeout: bootMs })
      .toBe(true);
    return printed;
  }
}

/** The screen of a machine in the page. */
export class Screen {
  private readonly canvas: Locator;

  constructor(private readonly page: Page) {
    this.canvas = page.locator('[data-console=vnc] canvas');
  }

  async connected(): Promise<void> {
    await expect(this.page.getByText('Connected', { exact: true })).toBeVisible();
    await expect(this.canvas).toBeVisible();
  }

  async type(line: string): Promise<void> {
    await this.canvas.click();
    for (const key of line) {
      // The guest sees keys, not characters: who types capitals and the like holds Shift down.
      await this.page.keyboard.press(/[A-Z~!@#$%^&*()_+{}|:"<>?]/.test(key) ? `Shift+${key}` : key === ' ' ? 'Space' : key);
    }
    await this.page.keyboard.press('Enter');
  }

  /** Has the page type a text, which works where there is nothing to paste into. */
  async paste(text: string): Promise<void> {
    await this.page.getByRole('button', { name: 'Paste' }).click();
    await this.page.getByRole('dialog', { name: 'Paste' }).getByLabel('Text').fill(text);
    await this.page.getByRole('button', { name: 'Type it' }).click();
  }

  /** What is painted, to compare. */
  picture(): Promise<string> {
    return this.canvas.evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL());
  }
}
