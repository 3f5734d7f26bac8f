import { act, confirm, dialog, row, title } from './support/fields.ts';
import { empty, have, machinesPath } from './support/guests.ts';
import { expect, test } from './support/test.ts';

test('what one browser changes, the other shows without a reload', async ({ page, server, adminSession, newBrowser }) => {
  const other = await newBrowser(adminSession);
  await have(server, machinesPath, empty('shared'));
  await page.goto('machines');
  await other.goto('machines');
  await expect(row(other, 'shared').getByText('Stopped', { exact: true })).toBeVisible();

  await test.step('a machine is started', async () => {
    await act(page, 'shared', 'Start');
    await expect(row(other, 'shared').getByText('Running', { exact: true })).toBeVisible();
  });

  await test.step('labels are changed, on its own screen', async () => {
    await page.goto('namespaces/default');
    await other.goto('namespaces/default');
    await page.locator('section', { hasText: 'Labels' }).getByRole('button', { name: 'Edit' }).click();
    await dialog(page, 'Labels').getByRole('combobox', { name: 'Labels' }).fill('seen-by=both');
    await page.keyboard.press('Enter');
    await dialog(page, 'Labels').getByRole('button', { name: 'Save' }).click();
    await expect(other.getByText('seen-by=both')).toBeVisible();
  });

  await test.step('a machine is deleted while the other looks at it', async () => {
    await other.goto('machines/default/shared');
    await expect(title(other, 'shared')).toBeVisible();
    await page.goto('machines');
    await act(page, 'shared', 'Delete');
    await confirm(page, 'Delete shared?', 'Delete');
    await expect(other.getByText('shared is not there')).toBeVisible();
  });
});

test('whoever edits what another has changed meanwhile is told so', async ({ page, server }) => {
  const path = '/api/v1/namespaces/default/configmaps';
  await have(server, path, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'edited' }, data: { colour: 'red' } });
  await page.goto('explorer/core/configmaps/default/edited/yaml');
  const editor = page.getByRole('textbox', { name: 'Edit YAML' });
  await expect(editor).toContainText('colour: red');
  await expect(editor).toBeEditable();
  await editor.getByText('colour: red').click();
  await page.keyboard.press('End');
  await page.keyboard.type('dish');
  await server.api.patch(`${path}/edited`, { data: { shape: 'round' } });
  await expect(page.getByText('It was changed on the server meanwhile.')).toBeVisible();
  // What was typed is still there, and is not sent over the other's change.
  await expect(editor).toContainText('colour: reddish');
  await page.getByRole('button', { name: 'Review changes' }).click();
  await page.getByRole('button', { name: 'Apply' }).click();
  await expect(page.getByRole('alert').filter({ hasText: 'The server refused this' })).toContainText('modified');
  await page.getByRole('button', { name: 'Start over from the new state' }).click();
  await expect(editor).toContainText('shape: round');
});
