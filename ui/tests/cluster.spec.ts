import { readFileSync } from 'node:fs';
import { act, confirm, dialog, field, row, title } from './support/fields.ts';
import { expect, test } from './support/test.ts';

test('a network is made', async ({ page }) => {
  await page.goto('networks');
  await page.getByRole('button', { name: 'Create network' }).first().click();
  const form = dialog(page, 'Create network');
  await field(form, 'Name').fill('lan');
  await field(form, 'Bridge').fill('br-test');
  await field(form, 'VLAN ID').fill('100');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(row(page, 'lan')).toContainText('100');
});

test('a host gets a label, is cordoned, and says what maintenance would end', async ({ page, server }) => {
  const { items } = await server.api.get<{ items: { metadata: { name: string } }[] }>('/api/v1/nodes');
  const host = items[0]?.metadata.name ?? '';
  await page.goto(`hosts/${host}`);
  await page.locator('section', { hasText: 'Labels' }).getByRole('button', { name: 'Edit', exact: true }).click();
  await dialog(page, 'Labels').getByRole('combobox', { name: 'Labels' }).fill('rack=7');
  await page.keyboard.press('Enter');
  await dialog(page, 'Labels').getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('rack=7')).toBeVisible();

  await act(page, host, 'Cordon');
  await confirm(page, `Cordon ${host}?`, 'Cordon');
  await expect(page.getByText('Cordoned', { exact: true })).toBeVisible();
  await act(page, host, 'Uncordon');
  await expect(page.getByText('Cordoned', { exact: true })).toHaveCount(0);

  await act(page, host, 'Maintenance mode');
  const maintenance = dialog(page, `Put ${host} into maintenance?`);
  await expect(maintenance).toContainText('what runs here is shut down');
  await maintenance.getByRole('button', { name: 'Cancel' }).click();
});

test('a namespace is made and gets a quota', async ({ page }) => {
  await page.goto('namespaces');
  await page.getByRole('button', { name: 'Create namespace' }).click();
  await field(dialog(page, 'Create namespace'), 'Name').fill('team');
  await field(dialog(page, 'Create namespace'), 'Description').fill('What the team has');
  await dialog(page, 'Create namespace').getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('link', { name: 'team', exact: true }).click();
  await expect(page.getByText('What the team has')).toBeVisible();
  await page.getByRole('button', { name: 'Add quota' }).click();
  const form = dialog(page, 'Add quota');
  await field(form, 'CPUs (limits.cpu)').fill('4');
  await field(form, 'Memory (limits.memory)').fill('8');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(page.getByText('limits.cpu')).toBeVisible();
  await expect(page.getByText('8 GiB')).toBeVisible();
});

test('a user is made, signs in, and must choose another password', async ({ page, newBrowser }) => {
  await page.goto('access');
  await page.getByRole('button', { name: 'Create user' }).first().click();
  const form = dialog(page, 'Create user');
  await field(form, 'User name').fill('jane');
  const password = await field(form, 'First password').inputValue();
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(dialog(page, 'The user jane can sign in')).toContainText(password);
  await page.getByRole('button', { name: 'I have it' }).click();
  await expect(page.getByText(password)).toHaveCount(0);
  await expect(row(page, 'jane')).toContainText('to be changed');

  const theirs = await newBrowser();
  await theirs.goto('machines');
  await field(theirs, 'User').fill('jane');
  await field(theirs, 'Password').fill(password);
  await theirs.getByRole('button', { name: 'Sign in' }).click();
  await field(theirs, 'New password').fill('what jane likes');
  await field(theirs, 'New password again').fill('what jane likes');
  await theirs.getByRole('button', { name: 'Set password and go on' }).click();
  await expect(title(theirs, 'Virtual machines')).toBeVisible();
  await expect(row(page, 'jane')).toContainText('chosen by the user');
});

test('a role is made and given', async ({ page, server }) => {
  await page.goto('access/roles');
  await page.getByRole('button', { name: 'Create role' }).click();
  const form = dialog(page, 'Create role');
  await field(form, 'Name').fill('starter');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  await expect(row(page, 'starter')).toBeVisible();
  const role = await server.api.get<{ rules: { verbs: string[]; resources: string[] }[] }>('/apis/rbac.authorization.k8s.io/v1/clusterroles/starter');
  expect(role.rules.flatMap(({ verbs }) => verbs)).not.toContain('create');
  expect(role.rules.flatMap(({ resources }) => resources)).toContain('virtualmachines');
});

test('an API key works until it is ended', async ({ page, playwright, server }) => {
  await page.goto('access/tokens');
  await page.getByRole('button', { name: 'Create API key' }).first().click();
  const form = dialog(page, 'Create API key');
  await field(form, 'Description').fill('build server');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  const token = (await dialog(page, 'Your API key').locator('pre').innerText()).trim();
  await page.getByRole('button', { name: 'I have it' }).click();
  const program = await playwright.request.newContext({ ignoreHTTPSErrors: true, extraHTTPHeaders: { Authorization: `Bearer ${token}` } });
  const status = async () => (await program.get(`${server.url}/api/v1/nodes`)).status();
  expect(await status()).toBe(200);
  await page.getByRole('button', { name: 'End build server?' }).click();
  await confirm(page, 'End build server?', 'End');
  await expect(page.getByText('build server')).toHaveCount(0);
  expect(await status()).toBe(401);
  await program.dispose();
});

test('a setting is changed, refused where it makes no sense, and reset', async ({ page }) => {
  await page.goto('settings/max-hotplug-ratio');
  await expect(page.getByText('the default', { exact: true })).toBeVisible();
  await field(page, 'Value').fill('8');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('changed', { exact: true })).toBeVisible();
  await field(page, 'Value').fill('9999');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.locator('form').getByText(/9999|between|must|at most/).first()).toBeVisible();
  await page.getByRole('button', { name: 'Reset to default' }).click();
  await confirm(page, 'Reset max-hotplug-ratio to its default?', 'Reset to default');
  await expect(page.getByText('the default', { exact: true })).toBeVisible();
});

test('an add-on says whether it can be used', async ({ page }) => {
  await page.goto('addons');
  await act(page, 'rancher-monitoring', 'Switch on');
  await confirm(page, /^Switch on rancher-monitoring/, 'Switch on');
  await expect(row(page, 'rancher-monitoring').getByText('On', { exact: true })).toBeVisible();
  await act(page, 'rancher-monitoring', 'Switch off');
  await confirm(page, /^Switch off rancher-monitoring/, 'Switch off');
  await expect(row(page, 'rancher-monitoring').getByText('Off', { exact: true })).toBeVisible();
});

test('a support bundle is made and downloaded', async ({ page }) => {
  await page.goto('support');
  await page.getByRole('button', { name: 'Create support bundle' }).first().click();
  const form = dialog(page, 'Create support bundle');
  await field(form, 'What is the matter?').fill('Nothing, to see what is in it');
  await form.getByRole('button', { name: 'Create', exact: true }).click();
  const made = page.getByRole('row').filter({ hasText: 'Nothing, to see what is in it' });
  await expect(made.getByText('Ready')).toBeVisible({ timeout: 120_000 });
  const saved = page.waitForEvent('download');
  await made.getByRole('link', { name: /\.zip$/ }).click();
  const bundle = readFileSync(await (await saved).path());
  expect(bundle.subarray(0, 2).toString()).toBe('PK');
});
