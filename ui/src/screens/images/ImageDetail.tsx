import { Button } from '@mantine/core';
import { IconDeviceDesktopPlus } from '@tabler/icons-react';
import { useRef } from 'react';
import type { VirtualMachineImage } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { useMayDo } from '@/parts/kind/rights';
import { QueryLink } from '@/parts/QueryLink';
import { imageState, labelOf, sourceLabel } from './image';
import { imageMenu } from './ImageList';
import { ImageStateCell } from './ImageState';
import { startUpload } from './upload';
import { Uploads, useUploads } from './Uploads';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.images}
      area="/images"
      parent={t('images.title')}
      titleOf={labelOf}
      meta={(image) => <ImageStateCell image={image} />}
      facts={(image) => [
        [t('common.description'), image.spec.description],
        [t('images.source'), t(sourceLabel(image))],
        [t('images.url'), image.spec.url],
        [t('images.volume'), image.spec.pvcName],
        [t('images.fileSize'), formatBytes(image.status?.size || undefined, language())],
        [t('images.diskSize'), formatBytes(image.status?.virtualSize || undefined, language())],
        [t('images.checksum'), image.spec.checksum],
        [t('images.storageClass'), image.status?.storageClassName],
      ]}
      body={() => <Uploads />}
      actions={(image) => <Actions image={image} />}
      menu={imageMenu}
      deleteHelp={t('images.deleteHelp')}
    />
  );
}

function Actions({ image }: { image: VirtualMachineImage }) {
  const input = useRef<HTMLInputElement>(null);
  const mayUpdate = useMayDo('update', kinds.images, image);
  const uploading = useUploads().some((upload) => upload.id === `${image.metadata.namespace}/${image.metadata.name}`);
  const { tone } = imageState(image);
  if (tone === 'ok') {
    return <Button component={QueryLink} to="/machines/new" query={{ image: `${image.metadata.namespace}/${image.metadata.name}` }} leftSection={<IconDeviceDesktopPlus size={17} />}>{t('images.newMachine')}</Button>;
  }
  if (image.spec.sourceType !== 'upload' || !mayUpdate || uploading) return null;
  return (
    <>
      <input ref={input} type="file" hidden aria-label={t('images.file')} onChange={(event) => { const file = event.currentTarget.files?.[0]; if (file) startUpload(image, file); }} />
      <Button variant="light" onClick={() => input.current?.click()}>{t('images.chooseAgain')}</Button>
    </>
  );
}
