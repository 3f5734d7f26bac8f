import { useCallback, useMemo } from 'react';
import { useCollection } from '@/api/collections';
import type { VirtualMachineImage } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';

export interface ImageChoice {
  /** `namespace/name` */
  id: string;
  label: string;
  ready: boolean;
  cd: boolean;
  virtualSize: number;
  storageClass: string | undefined;
}

export function imageChoice(image: VirtualMachineImage): ImageChoice {
  const ready = image.status?.conditions?.some((condition) => condition.type === 'Imported' && condition.status === 'True') ?? false;
  return {
    id: `${image.metadata.namespace}/${image.metadata.name}`,
    label: image.spec.displayName || image.metadata.name,
    ready,
    cd: /\.iso$/i.test(image.spec.displayName) || /\.iso(\?|$)/i.test(image.spec.url ?? ''),
    virtualSize: image.status?.virtualSize ?? 0,
    storageClass: image.status?.storageClassName,
  };
}

/** What the form offers: images, networks, keys, volumes and so on, live. */
export function useChoices(namespace: string) {
  const imageSnapshot = useCollection(kinds.images);
  const networks = useCollection(kinds.networks).items;
  const keyPairs = useCollection(kinds.keyPairs).items;
  const classes = useCollection(kinds.storageClasses).items;
  const nodes = useCollection(kinds.nodes).items;
  const volumes = useCollection(kinds.volumes).items;

  const images = useMemo(() => imageSnapshot.items.map(imageChoice).sort((a, b) => a.label.localeCompare(b.label)), [imageSnapshot.items]);
  const byId = useMemo(() => new Map(images.map((image) => [image.id, image])), [images]);
  const classOf = useCallback((image: string) => byId.get(image)?.storageClass, [byId]);

  return {
    imageSnapshot,
    images,
    imageById: byId,
    classOf,
    imageOptions: images.map((image) => ({ value: image.id, label: image.ready ? image.label : `${image.label} (${t('create.imageNotReady')})`, disabled: !image.ready })),
    networkOptions: [{ value: '', label: t('create.defaultNetwork') }, ...networks.map(({ metadata }) => ({ value: `${metadata.namespace}/${metadata.name}`, label: `${metadata.namespace}/${metadata.name}` }))],
    keyPairs,
    classOptions: [{ value: '', label: t('create.defaultClass') }, ...classes.filter((each) => !each.parameters?.['backingImage']).map(({ metadata }) => ({ value: metadata.name, label: metadata.name }))],
    hostOptions: [{ value: '', label: t('create.anyHost') }, ...nodes.map(({ metadata }) => ({ value: metadata.name, label: metadata.name }))],
    volumeOptions: volumes.filter((volume) => volume.metadata.namespace === namespace).map(({ metadata }) => metadata.name),
  };
}

export type Choices = ReturnType<typeof useChoices>;
