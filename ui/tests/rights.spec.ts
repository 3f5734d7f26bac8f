import { empty, have, machinesPath } from './support/guests.ts';
import { act, row, title } from './support/fields.ts';
import { haveUser } from './support/users.ts';
import { nobody } from './support/session.ts';
import { expect, test } from './support/test.ts';

// Who looks is said by each test.
test.use({ storageState: nobody });

test.beforeAll(async ({ server }) => {
  await have(server, machinesPath, empty('guarded'));
});

test('who may only look sees no action and is told why', async ({ server, newBrowser }) => {
  const page = await newBrowser(await haveUser(server, 'looker', 'view'));
  await page.goto('machines');
  await expect(row(page, 'guarded')).toBeVisible();
  await expect(page.getByRole('link', { name: 'Create machine' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Actions for guarded' }).click();
  await expect(page.getByText('You may only look at this.')).toBeVisible();
  await expect(page.getByRole('menuitem')).toHaveCount(0);

  await page.goto('machines/default/guarded');
  await expect(title(page, 'guarded')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Start' })).toHaveCount(0);
  await page.goto('machines/default/guarded/yaml');
  await expect(page.getByRole('textbox', { name: 'Edit YAML' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Review changes' })).toHaveCount(0);

  for (const [path, action] of [['volumes', 'Create volume'], ['images', 'Add image'], ['keys', 'Add key'], ['templates', 'New template'], ['networks', 'Create network'], ['namespaces', 'Create namespace'], ['schedules', 'New schedule'], ['storage-classes', 'New storage class'], ['support', 'Create support bundle'], ['access', 'Create user']] as const) {
    await page.goto(path);
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
    await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
    await expect(page.getByRole('button', { name: action }).or(page.getByRole('link', { name: action })), `${path}: ${action}`).toHaveCount(0);
  }
});

test('a forged request is refused by the server and changes nothing', async ({ server, newBrowser }) => {
  const page = await newBrowser(await haveUser(server, 'looker', 'view'));
  await page.goto('machines');
  await expect(row(page, 'guarded')).toBeVisible();
  const forged = await page.evaluate(async (path) => {
    const token = /CSRF=([^;]*)/.exec(document.cookie)?.[1] ?? '';
    const send = async (method: string, url: string, body: unknown, type = 'application/json') => {
      const response = await fetch(url, { method, headers: { 'X-API-CSRF': token, 'Content-Type': type }, body: JSON.stringify(body) });
      const status = (await response.json()) as { message: string };
      return { code: response.status, message: status.message };
    };
    return Promise.all([
      send('PATCH', `${path}/guarded`, { spec: { runStrategy: 'Always' } }, 'application/merge-patch+json'),
      send('PUT', '/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/guarded/start', {}),
      send('POST', '/v1/harvester/kubevirt.io.virtualmachines/default/guarded?action=start', {}),
      send('DELETE', `${path}/guarded`, {}),
    ]);
  }, machinesPath);
  for (const { code, message } of forged) {
    expect(code, message).toBe(403);
    expect(message).toContain('cannot');
  }
  const machine = await server.api.get<{ spec: { runStrategy: string } }>(`${machinesPath}/guarded`);
  expect(machine.spec.runStrategy).toBe('Halted');
});

test('a right that is taken away while the page is open is refused clearly', async ({ server, newBrowser }) => {
  const page = await newBrowser(await haveUser(server, 'worker', 'edit'));
  await page.goto('machines');
  await page.getByRole('button', { name: 'Actions for guarded' }).click();
  await expect(page.getByRole('menuitem', { name: 'Start', exact: true })).toBeVisible();
  await server.api.delete('/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/worker-edit');
  await page.getByRole('menuitem', { name: 'Start', exact: true }).click();
  const refusal = page.getByRole('alert').filter({ hasText: 'Start of guarded failed' });
  await expect(refusal).toContainText('worker');
  await expect(refusal).toContainText('cannot');
});

test('who has rights in one namespace works there, and nowhere else', async ({ server, newBrowser }) => {
  await have(server, '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'theirs' } });
  const page = await newBrowser(await haveUser(server, 'tenant', 'edit', 'theirs'));
  await have(server, '/apis/kubevirt.io/v1/namespaces/theirs/virtualmachines', { ...empty('own'), metadata: { name: 'own', namespace: 'theirs' } });
  await page.goto('machines');
  await expect(row(page, 'own')).toBeVisible();
  await expect(page.getByRole('link', { name: 'guarded', exact: true })).toHaveCount(0);
  await act(page, 'own', 'Change size');
  await expect(page.getByRole('dialog', { name: 'Size of own' })).toBeVisible();
  await page.keyboard.press('Escape');
  // What is not theirs is not a fault of the page.
  await page.goto('hosts');
  await expect(page.getByText('You may not see this')).toBeVisible();
  await page.goto('machines/default/guarded');
  await expect(page.getByText('You may not see this')).toBeVisible();
});
