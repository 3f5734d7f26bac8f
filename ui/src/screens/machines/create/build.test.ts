import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { claimTemplatesOf } from '../machine';
import { build } from './build';
import { problemOf, userDataOf } from './cloudInit';
import { emptyForm, newDisk } from './form';

const access = { user: '', password: '', keys: [], installAgent: false };
const classes = (image: string) => (image === 'default/debian' ? 'longhorn-debian' : undefined);

function form() {
  return { ...emptyForm('default'), name: 'web', disks: [newDisk('image', { image: 'default/debian', id: 'aaaaa' })] };
}

describe('a machine from the form', () => {
  it('has a claim of its image, a network and no Secret if nobody asked for one', () => {
    const { machine, secret } = build(form(), classes);
    expect(secret).toBeNull();
    expect(claimTemplatesOf(machine)[0]).toEqual({
      metadata: { name: 'web-disk-0-aaaaa', annotations: { 'harvesterhci.io/imageId': 'default/debian' } },
      spec: { accessModes: ['ReadWriteMany'], resources: { requests: { storage: '10Gi' } }, volumeMode: 'Block', storageClassName: 'longhorn-debian' },
    });
    expect(machine.spec.template.spec.volumes).toEqual([{ name: 'disk-0', persistentVolumeClaim: { claimName: 'web-disk-0-aaaaa' } }]);
    expect(machine.spec.template.spec.networks).toEqual([{ name: 'default', pod: {} }]);
    expect(machine.spec.runStrategy).toBe('RerunOnFailure');
  });

  it('keeps passwords out of the machine and in the Secret', () => {
    const { machine, secret } = build({ ...form(), password: 'hunter2' }, classes);
    expect(JSON.stringify(machine)).not.toContain('hunter2');
    expect(secret?.stringData?.['userdata']).toContain('hunter2');
    expect(machine.spec.template.spec.volumes?.at(-1)).toEqual({ name: 'cloudinitdisk', cloudInitNoCloud: { secretRef: { name: 'web-cloudinit' } } });
  });

  it('has an empty drive as a CD-ROM without a volume', () => {
    const { machine } = build({ ...form(), disks: [...form().disks, newDisk('cdrom')] }, classes);
    expect(machine.spec.template.spec.domain.devices.disks?.[1]).toEqual({ name: 'disk-1', bootOrder: 2, cdrom: { bus: 'sata', readonly: true } });
    expect(machine.spec.template.spec.volumes).toHaveLength(1);
  });

  it('has Secure Boot with what it needs', () => {
    const { machine } = build({ ...form(), firmware: 'secureBoot', tpm: true }, classes);
    const { domain } = machine.spec.template.spec;
    expect(domain.firmware?.bootloader?.efi).toEqual({ secureBoot: true, persistent: true });
    expect(domain.features?.smm).toEqual({ enabled: true });
    expect(domain.devices.tpm).toEqual({ persistent: true });
  });

  it('is not started if that is not wanted', () => {
    expect(build({ ...form(), start: false }, classes).machine.spec.runStrategy).toBe('Halted');
  });
});

describe('cloud-init', () => {
  it('is made of password and keys', () => {
    const text = userDataOf('', { ...access, password: 'x', keys: ['ssh-ed25519 A'] });
    expect(text.startsWith('#cloud-config\n')).toBe(true);
    expect(parse(text)).toEqual({ password: 'x', chpasswd: { expire: false }, ssh_pwauth: true, ssh_authorized_keys: ['ssh-ed25519 A'] });
  });

  it('is merged into what the user wrote', () => {
    const text = userDataOf('#cloud-config\npackages: [vim]\nssh_authorized_keys: [a]\n', { ...access, keys: ['b'], installAgent: true });
    expect(parse(text)).toMatchObject({ packages: ['vim', 'qemu-guest-agent'], ssh_authorized_keys: ['a', 'b'] });
  });

  it('leaves scripts alone', () => {
    expect(userDataOf('#!/bin/sh\nreboot\n', { ...access, password: 'x' })).toBe('#!/bin/sh\nreboot\n');
  });

  it('says what is wrong', () => {
    expect(problemOf('#cloud-config\na: [')).toBeDefined();
    expect(problemOf('#cloud-config\n- a')).toBeDefined();
    expect(problemOf('#cloud-config\na: b')).toBeUndefined();
    expect(problemOf('#!/bin/sh\n: [')).toBeUndefined();
  });
});
