import { expect, it } from 'vitest';
import type { KeyPair, VirtualMachineTemplateVersion } from '@/api/harvester';
import { emptyForm, newDisk } from '@/screens/machines/create/form';
import { fromTemplate, openImages } from '@/screens/machines/create/template';
import { claimTemplatesOf } from '@/screens/machines/machine';
import { versionFromForm, versionsOf, versionToEdit } from './template';

const words = { template: 'web', namespace: 'default', description: 'A web server' };
const key: KeyPair = { metadata: { name: 'anna', namespace: 'default' }, spec: { publicKey: 'ssh-ed25519 AAAA anna' } };

function built(image = 'default/debian') {
  const form = { ...emptyForm('default'), disks: [newDisk('image', { image })], keys: ['ssh-ed25519 AAAA anna'], password: 'hunter2' };
  return versionFromForm(words, form, () => (image ? 'longhorn-debian' : undefined), [key], 'abcde');
}

it('makes a version of what the form says', () => {
  const { version, secret } = built();
  expect(version.metadata.name).toBe('web-abcde');
  expect(version.spec).toMatchObject({ templateId: 'default/web', description: 'A web server', imageId: 'default/debian', keyPairIds: ['default/anna'] });
  expect(JSON.stringify(version)).not.toContain('hunter2');
  expect(secret?.metadata).toMatchObject({ name: 'web-abcde-cloudinit', namespace: 'default' });
});

it('leaves the image open until a machine is made', () => {
  const { version } = built('');
  const claim = openImages(version)[0] ?? '';
  expect(claim).not.toBe('');
  expect(openImages(built().version)).toEqual([]);
  const made = fromTemplate(version, 'new', 'default', null, true, { [claim]: { id: 'default/large', storageClass: 'longhorn-large', virtualSize: 12 * 2 ** 30 } });
  const [disk] = made ? claimTemplatesOf(made.machine) : [];
  expect(disk?.metadata.annotations).toEqual({ 'harvesterhci.io/imageId': 'default/large' });
  expect(disk?.spec).toMatchObject({ storageClassName: 'longhorn-large', resources: { requests: { storage: '12Gi' } } });
});

it('finds the versions of a template, newest first', () => {
  const version = (name: string, number: number, templateId = 'default/web'): VirtualMachineTemplateVersion => ({ metadata: { name, namespace: 'default' }, spec: { templateId }, status: { version: number } });
  const found = versionsOf({ metadata: { name: 'web', namespace: 'default' } }, [version('a', 1), version('b', 10), version('c', 3, 'other/web')]);
  expect(found.map(({ metadata }) => metadata.name)).toEqual(['b', 'a']);
});

it('copies a version without what the server made of it', () => {
  const { version } = built();
  const copy = versionToEdit({ ...version, metadata: { ...version.metadata, uid: 'x', resourceVersion: '7' }, status: { version: 3 } });
  expect(copy.metadata.uid).toBeUndefined();
  expect(copy.metadata.name).toMatch(/^web-\w{5}$/);
  expect(copy.status).toBeUndefined();
  expect(copy.spec).toEqual(version.spec);
});
