import { choose, dialog, field, row, title } from './support/fields.ts';
import { haveImage, machinesPath } from './support/guests.ts';
import { expect, test } from './support/test.ts';

const publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA jane@desk';

test('an SSH key is added, and a private one is not', async ({ page }) => {
  await page.goto('keys');
  await page.getByRole('button', { name: 'Add key' }).first().click();
  const form = dialog(page, 'Add an SSH key');
  await field(form, 'Public key').fill('-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n');
  await expect(form.getByText('This is a private key: keep it to yourself.')).toBeVisible();
  await expect(form.getByRole('button', { name: 'Add key' })).toBeDisabled();
  await field(form, 'Public key').fill(publicKey);
  await expect(field(form, 'Name')).toHaveValue('jane-desk');
  await form.getByRole('button', { name: 'Add key' }).click();
  await expect(row(page, 'jane-desk').getByText('Valid')).toBeVisible();
});

test('a key is generated, and its private half is saved by the browser alone', async ({ page }) => {
  await page.goto('keys');
  await page.getByRole('button', { name: 'Generate key' }).first().click();
  const form = dialog(page, 'Generate an SSH key');
  await field(form, 'Name').fill('made');
  const saved = page.waitForEvent('download');
  await form.getByRole('button', { name: 'Generate key' }).click();
  expect((await saved).suggestedFilename()).toBe('made.pem');
  await expect(row(page, 'made')).toBeVisible();
});

test('a cloud-config is kept for later', async ({ page }) => {
  await page.goto('cloud-configs/new');
  await field(page, 'Name').fill('greeting');
  await page.getByRole('textbox', { name: 'Content' }).click();
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.insertText('#cloud-config\nruncmd: [echo hello]\n');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(title(page, 'greeting')).toBeVisible();
  await expect(page.getByText('echo hello').first()).toBeVisible();
});

test('a template is made, and a machine of it', async ({ page, server }) => {
  await haveImage(server);
  await page.goto('templates/new');
  await field(page, 'Name').fill('small');
  await choose(page, 'Image', 'tiny');
  await page.getByRole('button', { name: /^Tiny/ }).click();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(title(page, 'small')).toBeVisible();

  await page.goto('machines/new?from=template');
  await choose(page, 'Template', 'default/small');
  await field(page, 'Name').fill('from-template');
  await page.getByRole('switch', { name: 'Start it at once' }).uncheck();
  await page.getByRole('button', { name: 'Create machine' }).click();
  await expect(title(page, 'from-template')).toBeVisible();
  await expect(page.getByText('Stopped', { exact: true })).toBeVisible();
  const machine = await server.api.get<{ spec: { template: { spec: { domain: { resources: { limits: Record<string, string> } } } } } }>(`${machinesPath}/from-template`);
  expect(machine.spec.template.spec.domain.resources.limits).toMatchObject({ cpu: '1', memory: '512Mi' });
});
