import { bootMs, Screen, SerialConsole } from './support/consoles.ts';
import { choose, field, row } from './support/fields.ts';
import { guestImage } from './support/program.ts';
import { nobody } from './support/session.ts';
import { adminPassword, expect, test } from './support/test.ts';

// A server on which nobody has made anything yet.
test.use({ serverOptions: { password: adminPassword, node: true }, storageState: nobody });

test('a newcomer signs in, uploads an image, makes a machine and uses it through both consoles', async ({ page, context }) => {
  await page.goto('');
  await field(page, 'User').fill('admin');
  await field(page, 'Password').fill(adminPassword);
  await page.getByRole('button', { name: 'Sign in' }).click();

  await test.step('the dashboard says what to do first', async () => {
    await page.getByRole('link', { name: 'Add image', exact: true }).click();
    await page.getByText('Upload a file').click();
    await field(page, 'File').setInputFiles(guestImage());
    await page.getByRole('button', { name: 'Start upload' }).click();
    await expect(row(page, 'tiny.qcow2').getByText('Ready')).toBeVisible();
  });

  await test.step('the short form asks for little', async () => {
    await page.getByRole('link', { name: 'Virtual machines' }).click();
    await page.getByRole('link', { name: 'Create machine' }).first().click();
    await field(page, 'Name').fill('first');
    await choose(page, 'Image', 'tiny.qcow2');
    await page.getByRole('button', { name: /^Tiny/ }).click();
    // A machine that is full of builds has no room for the ten that are suggested.
    await field(page, 'Disk').fill('1');
    await field(page, 'Password').fill('turnip-soup-7');
    await page.getByRole('button', { name: 'Create and start' }).click();
    await expect(page).toHaveURL(/\/machines\/default\/first\/console$/);
    await expect(page.getByText('Running', { exact: true })).toBeVisible({ timeout: bootMs });
  });

  const serial = new SerialConsole(page);
  await test.step('the serial console takes what is typed', async () => {
    await page.getByText('Serial', { exact: true }).click();
    await serial.logIn('root', 'turnip-soup-7');
    expect(await serial.run('echo $((40+2))')).toBe('42');
    expect(await serial.run('hostname')).toBe('first');
    // Whatever a guest prints is text.
    const hostile = '<img src=x onerror=alert(1)>';
    expect(await serial.run(`echo '${hostile}'`)).toBe(hostile);
    await expect(page.locator('img[src="x"]')).toHaveCount(0);
  });

  await test.step('so does the screen', async () => {
    const beside = await context.newPage();
    await beside.goto('machines/default/first/console');
    const screen = new Screen(beside);
    await screen.connected();
    // What the screen shows is also asked of the guest, which knows it as text.
    const shown = () => serial.run("tr -s ' ' </dev/vcs1");
    await expect.poll(shown).toContain('login:');
    await screen.type('root');
    await expect.poll(shown).toContain('assword:');
    await screen.type('turnip-soup-7');
    await expect.poll(shown).toContain('root@first');
    const before = await screen.picture();
    await screen.type('echo "Typed: $((6*7))" > /tmp/screen');
    await expect.poll(() => serial.run('cat /tmp/screen')).toBe('Typed: 42');
    expect(await screen.picture()).not.toEqual(before);
    await screen.paste('echo "Pasted: $((6*8))" > /tmp/screen\n');
    await expect.poll(() => serial.run('cat /tmp/screen')).toBe('Pasted: 48');
  });
});
