import type { Page } from '@playwright/test';
import { field } from './support/fields.ts';
import { empty, have, machinesPath } from './support/guests.ts';
import { expect, test } from './support/test.ts';

const image = '<img src=x onerror="window.pwned=1">';
const script = '<script>window.pwned=2</script>';
const link = 'javascript:window.pwned=3';
const markdown = `[click](${link}) ${image} ${script}`;
/** Turns what follows around, and never ends. */
const turned = '\u202egnp.exe\u2066';
const long = 'endless'.repeat(2_000);
const everything = `${markdown} ${turned} {{7*7}} \${7*7} %0d%0a ${long}`;

/** Notes whatever the texts get to run, and whatever the policy had to stop. */
async function guard(page: Page): Promise<() => Promise<unknown[]>> {
  await page.addInitScript(() => {
    const broken: string[] = [];
    Object.assign(window, { broken });
    document.addEventListener('securitypolicyviolation', (event) => broken.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    for (const name of ['alert', 'confirm', 'prompt'] as const) window[name] = () => broken.push(name) as never;
  });
  return () => page.evaluate(() => [...((window as unknown as { broken?: string[] }).broken ?? []), ...('pwned' in window ? ['a script ran'] : [])]);
}

test.beforeAll(async ({ server }) => {
  const core = '/api/v1/namespaces/default';
  const harvester = '/apis/harvesterhci.io/v1beta1/namespaces/default';
  await have(server, machinesPath, {
    ...empty('hostile', { annotations: { 'field.cattle.io/description': everything, note: everything } }),
  });
  const { metadata } = await server.api.get<{ metadata: { uid: string } }>(`${machinesPath}/hostile`);
  await have(server, `${core}/events`, {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name: 'hostile.1' },
    involvedObject: { apiVersion: 'kubevirt.io/v1', kind: 'VirtualMachine', name: 'hostile', namespace: 'default', uid: metadata.uid },
    reason: image,
    message: everything.slice(0, 1_000),
    type: 'Warning',
    source: { component: script },
    firstTimestamp: new Date().toISOString().replace(/\.\d+Z/, 'Z'),
    lastTimestamp: new Date().toISOString().replace(/\.\d+Z/, 'Z'),
    count: 3,
  });
  await have(server, `${core}/configmaps`, {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'hostile', labels: { 'harvesterhci.io/cloud-init-template': 'user' }, annotations: { [`x/y`]: everything } },
    data: { cloudInit: `#cloud-config\n# ${markdown} ${turned}\n`, text: everything, [`a.b-c_d`]: script },
  });
  await have(server, `${harvester}/virtualmachineimages`, {
    apiVersion: 'harvesterhci.io/v1beta1',
    kind: 'VirtualMachineImage',
    metadata: { name: 'hostile' },
    spec: { displayName: 'hostile', description: everything, sourceType: 'upload' },
  });
  await have(server, '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'hostile', annotations: { 'field.cattle.io/description': everything } } });
  await have(server, '/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles', {
    apiVersion: 'harvesterhci.io/v1beta1',
    kind: 'SupportBundle',
    metadata: { name: 'hostile' },
    spec: { description: markdown, issueURL: link },
  });
});

test('no text of an object is ever run, and none breaks a screen', async ({ page }) => {
  const found = await guard(page);
  const paths = [
    'machines',
    'machines/default/hostile',
    'machines/default/hostile/events',
    'machines/default/hostile/yaml',
    'overview',
    'images',
    'images/default/hostile',
    'images/default/hostile/yaml',
    'cloud-configs',
    'cloud-configs/default/hostile',
    'namespaces',
    'namespaces/hostile',
    'support',
    'support/harvester-system/hostile',
    'explorer/core/events',
    'explorer/core/configmaps/default/hostile',
    'explorer/core/configmaps/default/hostile/yaml',
    'machines/new',
  ];
  for (const path of paths) {
    await page.goto(path);
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
    await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
    await expect(page.getByText('This part of the page has failed')).toHaveCount(0);
    await expect(page.locator('a[href^="javascript:" i], img[src="x"], main script')).toHaveCount(0);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect(over, `${path} is wider than its window`).toBeLessThanOrEqual(0);
    expect(await found(), path).toEqual([]);
  }
});

test('texts that are typed into forms and into the address stay texts', async ({ page }) => {
  const found = await guard(page);
  await page.goto(`machines?q=${encodeURIComponent(image)}&state=${encodeURIComponent(script)}`);
  await expect(page.getByText('Nothing matches')).toBeVisible();
  await page.goto(`machines/default/${encodeURIComponent(image)}`);
  await expect(page.getByText('is not there')).toBeVisible();
  await page.goto(`explorer/${encodeURIComponent(script)}/${encodeURIComponent(image)}`);
  await expect(page.getByText('There is nothing at this address')).toBeVisible();
  await page.keyboard.press('ControlOrMeta+k');
  await page.getByRole('combobox', { name: 'Search or run a command' }).fill(image);
  await expect(page.getByRole('dialog').getByText(/Nothing matches|onerror/).first()).toBeVisible();
  await page.keyboard.press('Escape');
  // A refusal repeats what was sent.
  await page.goto('images/new');
  await field(page, 'URL').fill('http://127.0.0.1:1/x.img');
  await field(page, 'Name').fill(`${image}${script}`);
  await page.getByRole('button', { name: 'Start download' }).click();
  await expect(page.getByText('displayName is not a valid Kubernetes label value')).toBeVisible();
  expect(await found()).toEqual([]);
});
