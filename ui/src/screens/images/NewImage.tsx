import { Button, Group, Select, SegmentedControl, Stack, Text, TextInput } from '@mantine/core';
import { IconUpload } from '@tabler/icons-react';
import { Link, useNavigate } from '@tanstack/react-router';
import { useRef, useState, type DragEvent } from 'react';
import { createObject } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { VirtualMachineImage } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { useDefaultNamespace, useNamespaceNames } from '@/app/namespace';
import { language, t } from '@/i18n';
import { nameFrom, randomSuffix } from '@/parts/form/names';
import { Preview } from '@/parts/form/Preview';
import { allPlaced, refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { Card, PageHead } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import layout from '../machines/create/Create.module.css';
import classes from './NewImage.module.css';
import { wellKnown } from './wellKnown';
import { startUpload } from './upload';

type Way = 'upload' | 'download' | 'export-from-volume';
const placed = ['spec.displayName', 'spec.url', 'spec.checksum', 'spec.pvcName'];

export function Screen() {
  const defaultNamespace = useDefaultNamespace();
  const namespaces = useNamespaceNames();
  const volumes = useCollection(kinds.volumes).items;
  const navigate = useNavigate();
  const [way, setWay] = useState<Way>('download');
  const [namespace, setNamespace] = useState(defaultNamespace);
  const [title, setTitle] = useState('');
  const [description, setDescription] = useState('');
  const [url, setUrl] = useState('');
  const [checksum, setChecksum] = useState('');
  const [volume, setVolume] = useState<string | null>(null);
  const [file, setFile] = useState<File | null>(null);
  const [suffix] = useState(() => randomSuffix());

  const suggested = way === 'download' ? fileOf(url) : way === 'upload' ? (file?.name ?? '') : (volume?.split('/')[1] ?? '');
  const displayName = title || suggested;
  const image: VirtualMachineImage = {
    apiVersion: 'harvesterhci.io/v1beta1',
    kind: 'VirtualMachineImage',
    metadata: { name: `${nameFrom(displayName.replace(/\.\w+$/, '')) || 'image'}-${suffix}`, namespace },
    spec: {
      displayName,
      sourceType: way,
      ...(description && { description }),
      ...(way === 'download' && { url }),
      ...(way !== 'export-from-volume' && checksum && { checksum }),
      ...(way === 'export-from-volume' && volume && { pvcNamespace: volume.split('/')[0] ?? '', pvcName: volume.split('/')[1] ?? '' }),
    },
  };
  const badUrl = url !== '' && !/^https?:\/\/\S+$/.test(url);
  const badChecksum = checksum !== '' && !/^([0-9a-f]{64}|[0-9a-f]{128})$/i.test(checksum);
  const incomplete = displayName === '' || badUrl || badChecksum || (way === 'download' ? url === '' : way === 'upload' ? !file : !volume);

  const { busy, error, submit } = useSubmit(async () => {
    const made = await createObject(kinds.images, image);
    if (way === 'upload' && file) startUpload(made, file);
    void navigate({ to: '/images' });
  });
  const ways = [
    { value: 'download', label: t('images.fromUrl') },
    { value: 'upload', label: t('images.fromFile') },
    { value: 'export-from-volume', label: t('images.fromVolume') },
  ];
  const submitLabel = { download: t('images.submitUrl'), upload: t('images.submitFile'), 'export-from-volume': t('images.submitVolume') }[way];

  return (
    <>
      <PageHead title={t('images.newTitle')} parent={{ title: t('images.title'), to: '/images' }} />
      <form className={layout.layout} onSubmit={(event) => { event.preventDefault(); if (!incomplete && !busy) void submit(); }}>
        {error && !allPlaced(error, ...placed) && <Problem error={error} />}
        <Card>
          <Stack>
            <SegmentedControl value={way} onChange={(value) => setWay(value as Way)} data={ways} />
            {way === 'download' && <TextInput label={t('images.url')} description={t('images.urlHelp')} required type="url" placeholder="https://" value={url} onChange={(event) => setUrl(event.currentTarget.value.trim())} error={badUrl ? t('images.urlBad') : refusalOf(error, 'spec.url')} />}
            {way === 'download' && (
              <Group gap={6}>
                <Text size="sm" c="dimmed">{t('images.wellKnown')}</Text>
                {wellKnown.map((each) => <Button key={each.title} size="compact-sm" variant={each.url === url ? 'light' : 'default'} onClick={() => { setUrl(each.url); setTitle(each.title); }}>{each.title}</Button>)}
              </Group>
            )}
            {way === 'upload' && <FileDrop file={file} onFile={setFile} />}
            {way === 'export-from-volume' && <Select label={t('images.volume')} required searchable data={volumes.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`)} value={volume} onChange={setVolume} error={refusalOf(error, 'spec.pvcName')} />}
            <div className={layout.columns}>
              <TextInput label={t('images.displayName')} placeholder={suggested} value={title} onChange={(event) => setTitle(event.currentTarget.value)} error={refusalOf(error, 'spec.displayName')} />
              <Select label={t('common.namespace')} allowDeselect={false} searchable data={namespaces.includes(namespace) ? namespaces : [namespace, ...namespaces]} value={namespace} onChange={(value) => setNamespace(value ?? 'default')} />
              <TextInput label={t('images.description')} value={description} onChange={(event) => setDescription(event.currentTarget.value)} />
              {way !== 'export-from-volume' && <TextInput label={t('images.checksum')} description={t('images.checksumHelp')} spellCheck={false} value={checksum} onChange={(event) => setChecksum(event.currentTarget.value.trim())} error={badChecksum ? t('images.checksumBad') : refusalOf(error, 'spec.checksum')} />}
            </div>
          </Stack>
        </Card>
        <Preview objects={[image]} command={commandOf(image, file)} />
        <Group justify="flex-end">
          <Button variant="default" component={Link} to="/images">{t('common.cancel')}</Button>
          <Button type="submit" disabled={incomplete} loading={busy}>{submitLabel}</Button>
        </Group>
      </form>
    </>
  );
}

function FileDrop({ file, onFile }: { file: File | null; onFile: (file: File) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const dropped = event.dataTransfer.files[0];
    if (dropped) onFile(dropped);
  };
  return (
    <>
      <input ref={input} type="file" hidden aria-label={t('images.file')} onChange={(event) => { const chosen = event.currentTarget.files?.[0]; if (chosen) onFile(chosen); }} />
      <button type="button" className={classes.drop} data-over={over || undefined} onClick={() => input.current?.click()} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)} onDrop={drop}>
        <IconUpload size={28} stroke={1.5} aria-hidden />
        {file ? <><Text fw={560}>{file.name}</Text><Text size="sm">{formatBytes(file.size, language())} · {t('images.dropAgain')}</Text></> : t('images.drop')}
      </button>
    </>
  );
}

function fileOf(url: string): string {
  return url.split(/[?#]/)[0]?.split('/').pop() ?? '';
}

function commandOf({ metadata, spec }: VirtualMachineImage, file: File | null): string {
  if (spec.sourceType === 'download') return `croft image import ${metadata.name} ${spec.url} -n ${metadata.namespace}`;
  if (spec.sourceType === 'upload') return `croft image upload ${metadata.name} ${file?.name ?? 'FILE'} -n ${metadata.namespace}`;
  return '';
}
