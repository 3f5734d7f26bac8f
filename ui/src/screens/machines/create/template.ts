import type { PersistentVolumeClaim, Secret } from '@/api/core';
import type { VirtualMachineTemplateVersion } from '@/api/harvester';
import type { VirtualMachine } from '@/api/kubevirt';
import { binaryQuantity, parseQuantity } from '@/api/quantity';
import { randomSuffix } from '@/parts/form/names';
import { claimTemplatesAnnotation, claimTemplatesOf } from '../machine';
import type { Built } from './build';

const imageAnnotation = 'harvesterhci.io/imageId';

/** An image for a disk that the template leaves open. */
export interface ChosenImage {
  id: string;
  storageClass: string | undefined;
  virtualSize: number;
}

/** The claims of a version that wait for an image. */
export function openImages(version: VirtualMachineTemplateVersion | undefined): string[] {
  const claims = version?.spec.vm ? claimTemplatesOf(version.spec.vm) : [];
  return claims.filter((claim) => claim.metadata.annotations?.[imageAnnotation] === '').map((claim) => claim.metadata.name);
}

function withImage(claim: PersistentVolumeClaim, image: ChosenImage | undefined): PersistentVolumeClaim {
  if (!image) return claim;
  const size = Math.max(parseQuantity(claim.spec?.resources?.requests?.storage) ?? 0, image.virtualSize);
  return {
    ...claim,
    metadata: { ...claim.metadata, annotations: { ...claim.metadata.annotations, [imageAnnotation]: image.id } },
    spec: { ...claim.spec, ...(image.storageClass && { storageClassName: image.storageClass }), resources: { requests: { storage: binaryQuantity(size) } } },
  };
}

/**
 * A machine of a template's version: claims get names of their own, addresses and serials are left to the server,
 * and the cloud-init is copied into a Secret that belongs to the new machine.
 */
export function fromTemplate(version: VirtualMachineTemplateVersion, name: string, namespace: string, seed: Secret | null, start: boolean, images: Record<string, ChosenImage> = {}): Built | null {
  const vm = version.spec.vm;
  if (!vm) return null;
  const renamed = new Map(claimTemplatesOf(vm).map((claim, index) => [claim.metadata.name, `${name}-disk-${index}-${randomSuffix()}`]));
  const claims = claimTemplatesOf(vm).map((claim) => {
    const filled = withImage(claim, images[claim.metadata.name]);
    return { ...filled, metadata: { ...filled.metadata, name: renamed.get(claim.metadata.name) ?? claim.metadata.name } };
  });
  const spec = structuredClone(vm.spec);
  const guest = spec.template.spec;
  const secret = seed ? copyOf(seed, name, namespace) : null;
  for (const volume of guest.volumes ?? []) {
    const claim = volume.persistentVolumeClaim;
    if (claim) claim.claimName = renamed.get(claim.claimName) ?? claim.claimName;
    const source = volume.cloudInitNoCloud ?? volume.cloudInitConfigDrive;
    if (source?.secretRef && secret) source.secretRef = { name: secret.metadata.name };
    if (source?.networkDataSecretRef && secret) source.networkDataSecretRef = { name: secret.metadata.name };
  }
  for (const nic of guest.domain.devices.interfaces ?? []) delete nic.macAddress;
  delete guest.domain.firmware?.serial;
  delete guest.domain.firmware?.uuid;
  const machine: VirtualMachine = {
    apiVersion: 'kubevirt.io/v1',
    kind: 'VirtualMachine',
    metadata: {
      name,
      namespace,
      labels: { ...vm.metadata?.labels, 'harvesterhci.io/creator': 'croft' },
      annotations: { ...vm.metadata?.annotations, [claimTemplatesAnnotation]: JSON.stringify(claims) },
    },
    spec: {
      ...spec,
      runStrategy: start ? 'RerunOnFailure' : 'Halted',
      template: { ...spec.template, metadata: { ...spec.template.metadata, labels: { ...spec.template.metadata?.labels, 'harvesterhci.io/vmName': name } } },
    },
  };
  return { machine, secret };
}

/** The Secret with the cloud-init that a version names, if any. */
export function seedOf(version: VirtualMachineTemplateVersion | undefined): string | undefined {
  for (const volume of version?.spec.vm?.spec.template.spec.volumes ?? []) {
    const name = (volume.cloudInitNoCloud ?? volume.cloudInitConfigDrive)?.secretRef?.name;
    if (name) return name;
  }
  return undefined;
}

function copyOf(seed: Secret, name: string, namespace: string): Secret {
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: `${name}-cloudinit`, namespace, labels: { 'harvesterhci.io/cloud-init-template': 'harvester' } },
    ...(seed.data && { data: seed.data }),
  };
}
