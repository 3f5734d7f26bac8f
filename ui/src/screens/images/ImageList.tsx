import { Button, Menu } from '@mantine/core';
import { IconDeviceDesktopPlus, IconDownload, IconPhoto, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { VirtualMachineImage } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import { QueryLink } from '@/parts/QueryLink';
import type { Column, Facet } from '@/parts/table/columns';
import { downloadPath, imageState, labelOf, sourceLabel } from './image';
import { ImageStateCell } from './ImageState';
import { Uploads } from './Uploads';

export function Screen() {
  const mayCreate = useMayCreate(kinds.images);
  const columns = useMemo(() => imageColumns(), []);
  const facets = useMemo(() => imageFacets(), []);
  return (
    <>
      <KindList
        kind={kinds.images}
        area="/images"
        title={t('images.title')}
        icon={IconPhoto}
        columns={columns}
        facets={facets}
        emptyTitle={t('images.emptyTitle')}
        emptyHelp={t('images.emptyHelp')}
        create={mayCreate && <Button component={Link} to="/images/new" leftSection={<IconPlus size={17} />}>{t('images.add')}</Button>}
        menu={imageMenu}
        deleteHelp={t('images.deleteHelp')}
      />
      <div style={{ marginTop: 14 }}><Uploads /></div>
    </>
  );
}

export function imageMenu(image: VirtualMachineImage) {
  if (imageState(image).tone !== 'ok') return null;
  return (
    <>
      <Menu.Item component={QueryLink} to="/machines/new" query={{ image: `${image.metadata.namespace}/${image.metadata.name}` }} leftSection={<IconDeviceDesktopPlus size={16} />}>{t('images.newMachine')}</Menu.Item>
      <Menu.Item component="a" href={downloadPath(image)} leftSection={<IconDownload size={16} />}>{t('images.download')}</Menu.Item>
    </>
  );
}

function imageColumns(): Column<VirtualMachineImage>[] {
  return [
    nameColumn('/images', labelOf),
    { id: 'state', title: t('common.state'), value: (image) => t(imageState(image).label), cell: (image) => <ImageStateCell image={image} />, width: 'minmax(170px, 1.4fr)', phone: true },
    namespaceColumn(),
    { id: 'file', title: t('images.fileSize'), value: (image) => image.status?.size, cell: (image) => formatBytes(image.status?.size || undefined, language()), width: '110px', align: 'end', unsearched: true },
    { id: 'disk', title: t('images.diskSize'), value: (image) => image.status?.virtualSize, cell: (image) => formatBytes(image.status?.virtualSize || undefined, language()), width: '110px', align: 'end', unsearched: true },
    { id: 'source', title: t('images.source'), value: (image) => t(sourceLabel(image)) },
    { id: 'url', title: t('images.url'), value: (image) => image.spec.url, hidden: true },
    ageColumn(),
  ];
}

function imageFacets(): Facet<VirtualMachineImage>[] {
  return [{ id: 'state', title: t('common.state'), values: (image) => [t(imageState(image).label)] }];
}
