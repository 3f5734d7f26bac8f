import type { PersistentVolumeClaim, Secret } from '@/api/core';
import type { Disk, Domain, Interface, Network, VirtualMachine, Volume } from '@/api/kubevirt';
import { claimTemplatesAnnotation } from '../machine';
import { userDataOf } from './cloudInit';
import type { DiskForm, MachineForm } from './form';

/** What a form turns into: the machine, and the Secret with its cloud-init if it has one. */
export interface Built {
  machine: VirtualMachine;
  secret: Secret | null;
}

/** `namespace/name` of an image to the storage class that its volumes have. */
export type ClassOf = (image: string) => string | undefined;

const cloudInitDisk = 'cloudinitdisk';

export function build(form: MachineForm, classOf: ClassOf): Built {
  const secret = secretOf(form);
  const disks = form.disks.map((disk, index) => diskOf(form, disk, index, classOf));
  const claims = disks.map((disk) => disk.claim).filter((claim) => claim !== null);
  const nics = form.nics.map(nicOf);
  const machine: VirtualMachine = {
    apiVersion: 'kubevirt.io/v1',
    kind: 'VirtualMachine',
    metadata: {
      name: form.name,
      namespace: form.namespace,
      labels: { 'harvesterhci.io/creator': 'croft', ...form.labels },
      annotations: {
        ...(claims.length > 0 && { [claimTemplatesAnnotation]: JSON.stringify(claims) }),
        ...(form.description && { 'field.cattle.io/description': form.description }),
        ...(form.hotplug && { 'harvesterhci.io/enableCPUAndMemoryHotplug': 'true' }),
      },
    },
    spec: {
      runStrategy: form.start ? form.runStrategy : 'Halted',
      template: {
        metadata: { labels: { 'harvesterhci.io/vmName': form.name } },
        spec: {
          ...(form.hostname && { hostname: form.hostname }),
          ...(form.host && { nodeSelector: { 'kubernetes.io/hostname': form.host } }),
          domain: domainOf(form, [...disks.map((disk) => disk.disk), ...(secret ? [seedDisk] : [])], nics.map((nic) => nic.nic)),
          networks: nics.map((nic) => nic.network),
          volumes: [...disks.map((disk) => disk.volume).filter((volume) => volume !== null), ...(secret ? [seedVolume(form, secret)] : [])],
        },
      },
    },
  };
  return { machine, secret };
}

const seedDisk: Disk = { name: cloudInitDisk, disk: { bus: 'virtio' } };

function seedVolume(form: MachineForm, secret: Secret): Volume {
  const reference = { name: secret.metadata.name };
  return { name: cloudInitDisk, cloudInitNoCloud: { secretRef: reference, ...(form.networkData.trim() && { networkDataSecretRef: reference }) } };
}

function secretOf(form: MachineForm): Secret | null {
  const userData = userDataOf(form.userData, form);
  if (userData === '' && form.networkData.trim() === '') return null;
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: `${form.name}-cloudinit`, namespace: form.namespace, labels: { 'harvesterhci.io/cloud-init-template': 'harvester' } },
    stringData: { userdata: userData, ...(form.networkData.trim() && { networkdata: form.networkData }) },
  };
}

interface BuiltDisk {
  disk: Disk;
  volume: Volume | null;
  claim: PersistentVolumeClaim | null;
}

function diskOf(form: MachineForm, of: DiskForm, index: number, classOf: ClassOf): BuiltDisk {
  const name = `disk-${index}`;
  const disk: Disk = { name, bootOrder: index + 1, ...(of.source === 'cdrom' ? { cdrom: { bus: of.bus, readonly: true } } : { disk: { bus: of.bus } }) };
  if (of.source === 'container') return { disk, volume: { name, containerDisk: { image: of.container } }, claim: null };
  if (of.source === 'volume') return { disk, volume: { name, persistentVolumeClaim: { claimName: of.volume } }, claim: null };
  // An empty drive is a CD-ROM without a volume.
  if (of.source === 'cdrom' && !of.image) return { disk, volume: null, claim: null };
  const claimName = `${form.name}-disk-${index}-${of.id}`;
  const fromImage = of.source === 'image' || of.source === 'cdrom';
  const storageClassName = fromImage ? classOf(of.image) : of.storageClass;
  const claim: PersistentVolumeClaim = {
    metadata: { name: claimName, ...(fromImage && { annotations: { 'harvesterhci.io/imageId': of.image } }) },
    spec: {
      accessModes: ['ReadWriteMany'],
      resources: { requests: { storage: of.size } },
      volumeMode: 'Block',
      ...(storageClassName && { storageClassName }),
    },
  };
  return { disk, volume: { name, persistentVolumeClaim: { claimName } }, claim };
}

function nicOf({ network, model, mac }: MachineForm['nics'][number], index: number): { nic: Interface; network: Network } {
  const name = index === 0 ? 'default' : `nic-${index}`;
  const base = { name, model, ...(mac && { macAddress: mac }) };
  if (network === '') return { nic: { ...base, masquerade: {} }, network: { name, pod: {} } };
  return { nic: { ...base, bridge: {} }, network: { name, multus: { networkName: network } } };
}

function domainOf(form: MachineForm, disks: Disk[], interfaces: Interface[]): Domain {
  const efi = form.firmware === 'bios' ? null : { secureBoot: form.firmware === 'secureBoot', persistent: true };
  const cpu = form.hotplug ? { sockets: form.cpus, cores: 1, threads: 1 } : { sockets: 1, cores: form.cpus, threads: 1 };
  return {
    cpu,
    devices: {
      disks,
      interfaces,
      inputs: [{ name: 'tablet', type: 'tablet', bus: 'usb' }],
      rng: {},
      ...(form.tpm && { tpm: { persistent: true } }),
    },
    features: { acpi: { enabled: true }, ...(form.firmware === 'secureBoot' && { smm: { enabled: true } }) },
    ...(efi && { firmware: { bootloader: { efi } } }),
    ...(form.machineType && { machine: { type: form.machineType } }),
    resources: { limits: { cpu: String(form.cpus), memory: form.memory } },
  };
}
