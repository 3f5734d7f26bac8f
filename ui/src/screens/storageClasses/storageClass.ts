import { mergePatch } from '@/api/client';
import type { StorageClass } from '@/api/core';
import { apiVersionOf, kinds } from '@/api/kinds';

export const defaultAnnotation = 'storageclass.kubernetes.io/is-default-class';
const reservedAnnotation = 'harvesterhci.io/is-reserved-storageclass';
const imageAnnotation = 'harvesterhci.io/imageId';

export function isDefault(storageClass: StorageClass): boolean {
  return storageClass.metadata.annotations?.[defaultAnnotation] === 'true';
}

/** One that Harvester needs; it cannot be deleted. */
export function isReserved(storageClass: StorageClass): boolean {
  return storageClass.metadata.annotations?.[reservedAnnotation] === 'true';
}

/** `namespace/name` of the image whose content volumes of this class have. */
export function imageOf(storageClass: StorageClass): string | undefined {
  return storageClass.metadata.annotations?.[imageAnnotation];
}

/** Only volumes of these are made here. */
export const provisioners = ['driver.longhorn.io', 'local.croft.io'] as const;

export interface ClassForm {
  name: string;
  description: string;
  provisioner: string;
  reclaimPolicy: 'Delete' | 'Retain';
  volumeBindingMode: 'Immediate' | 'WaitForFirstConsumer';
  allowVolumeExpansion: boolean;
  /** Tags of the disks that its volumes may be on. */
  diskTags: string[];
}

export const emptyClass: ClassForm = {
  name: '',
  description: '',
  provisioner: provisioners[0],
  reclaimPolicy: 'Delete',
  volumeBindingMode: 'Immediate',
  allowVolumeExpansion: true,
  diskTags: [],
};

export function classObject(form: ClassForm): StorageClass {
  const longhorn = form.provisioner === provisioners[0];
  const parameters = {
    // What Harvester's own pages expect to find.
    ...(longhorn && { numberOfReplicas: '1', staleReplicaTimeout: '30', migratable: 'true' }),
    ...(form.diskTags.length > 0 && { diskSelector: form.diskTags.join(',') }),
  };
  return {
    apiVersion: apiVersionOf(kinds.storageClasses),
    kind: kinds.storageClasses.kind,
    metadata: { name: form.name, ...(form.description && { annotations: { 'field.cattle.io/description': form.description } }) },
    provisioner: form.provisioner,
    ...(Object.keys(parameters).length > 0 && { parameters }),
    reclaimPolicy: form.reclaimPolicy,
    volumeBindingMode: form.volumeBindingMode,
    allowVolumeExpansion: form.allowVolumeExpansion,
  };
}

/** There is one default at a time: the old one steps back first, and comes back if the new one is refused. */
export async function makeDefault(chosen: StorageClass, all: readonly StorageClass[]): Promise<void> {
  const set = (storageClass: StorageClass, value: 'true' | 'false') => mergePatch(kinds.storageClasses, storageClass, { metadata: { annotations: { [defaultAnnotation]: value } } });
  const before = all.filter((each) => isDefault(each) && each.metadata.name !== chosen.metadata.name);
  for (const each of before) await set(each, 'false');
  try {
    await set(chosen, 'true');
  } catch (error) {
    for (const each of before) await set(each, 'true').catch(() => undefined);
    throw error;
  }
}
