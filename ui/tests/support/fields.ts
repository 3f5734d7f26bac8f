import { expect, type Locator, type Page } from '@playwright/test';

/** The field with this label; where it must be filled in, the label ends with a star. */
export function field(within: Page | Locator, label: string): Locator {
  return within.getByLabel(new RegExp(`^${label.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}( \\*)?$`));
}

/** The title of a screen. */
export function title(page: Page, text: string): Locator {
  return page.getByRole('heading', { level: 1, name: text, exact: true });
}

/** Chooses an entry of a list to choose from, on the page or in a dialog. */
export async function choose(within: Page | Locator, label: string, entry: string | RegExp): Promise<void> {
  const page = 'page' in within ? within.page() : within;
  await within.getByRole('combobox', { name: label, exact: true }).click();
  await page.getByRole('option', { name: entry }).click();
}

/** The row of a table that has a link with this name. */
export function row(page: Page, name: string): Locator {
  return page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
}

/** Opens the menu of an object, in a list or on its own screen, and takes an entry of it. */
export async function act(page: Page, name: string, entry: string): Promise<void> {
  await page.getByRole('button', { name: `Actions for ${name}`, exact: true }).click();
  await page.getByRole('menuitem', { name: entry, exact: true }).click();
}

/** The dialog with this title. */
export function dialog(page: Page, title: string | RegExp): Locator {
  return page.getByRole('dialog', { name: title });
}

/** Answers the question that is asked before something is lost. */
export async function confirm(page: Page, title: string | RegExp, answer: string): Promise<void> {
  await dialog(page, title).getByRole('button', { name: answer, exact: true }).click();
  await dialog(page, title).waitFor({ state: 'hidden' });
}

/** Puts a text into the YAML editor in the place of what is there. */
export async function writeYaml(page: Page, text: string): Promise<void> {
  const editor = page.getByRole('textbox', { name: 'Edit YAML' });
  await expect(editor).toBeEditable();
  await editor.click();
  await page.keyboard.press('ControlOrMeta+a');
  // Typing would have the editor indent and complete; a paste is taken as it is.
  await page.keyboard.insertText(text);
}
