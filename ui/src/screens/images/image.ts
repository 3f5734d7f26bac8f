import type { VirtualMachineImage } from '@/api/harvester';
import type { Tone } from '@/parts/StatusBadge';
import type { Key } from '@/i18n';

/** What an image's object says about how far it is. */

export interface ImageState {
  tone: Tone;
  label: Key;
  message?: string;
  /** Of a hundred, while something is under way. */
  progress?: number;
}

export function imageState(image: VirtualMachineImage): ImageState {
  const condition = (type: string) => image.status?.conditions?.find((each) => each.type === type);
  const imported = condition('Imported');
  if (imported?.status === 'True') return { tone: 'ok', label: 'images.ready' };
  if (imported?.status === 'False' || condition('RetryLimitExceeded')?.status === 'True') {
    const message = imported?.message || condition('RetryLimitExceeded')?.message;
    return { tone: 'bad', label: 'images.failed', ...(message && { message }) };
  }
  const progress = image.status?.progress ?? 0;
  if (image.spec.sourceType === 'download') return { tone: 'busy', label: 'images.downloading', progress };
  if (image.spec.sourceType === 'upload') {
    return progress > 0 ? { tone: 'busy', label: 'images.uploading', progress } : { tone: 'warn', label: 'images.waitingForFile' };
  }
  return { tone: 'busy', label: 'images.importing', progress };
}

const sources: Record<VirtualMachineImage['spec']['sourceType'], Key> = {
  download: 'images.sourceDownload',
  upload: 'images.sourceUpload',
  'export-from-volume': 'images.sourceExport',
  clone: 'images.sourceClone',
  restore: 'images.sourceRestore',
};

export function sourceLabel(image: VirtualMachineImage): Key {
  return sources[image.spec.sourceType];
}

export function labelOf(image: VirtualMachineImage): string {
  return image.spec.displayName || image.metadata.name;
}

export function downloadPath(image: VirtualMachineImage): string {
  return `/v1/harvester/harvesterhci.io.virtualmachineimages/${image.metadata.namespace}/${image.metadata.name}/download`;
}
