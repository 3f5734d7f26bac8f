import { ActionIcon, Button, Group, Progress, Stack, Text, Tooltip } from '@mantine/core';
import { IconPlayerPause, IconPlayerPlay, IconX } from '@tabler/icons-react';
import { useEffect, useSyncExternalStore } from 'react';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { Card } from '@/parts/Page';
import { labelOf } from './image';
import type { Upload } from './upload';
import { cancelUpload, forgetUpload, pauseUpload, resumeUpload, uploadStore } from './upload';

export function useUploads(): readonly Upload[] {
  return useSyncExternalStore(uploadStore.subscribe, uploadStore.snapshot);
}

/** The uploads of this page, with pause and resume. */
export function Uploads() {
  const uploads = useUploads();
  const busy = uploads.some((upload) => upload.state === 'sending');

  useEffect(() => {
    if (!busy) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener('beforeunload', warn);
    return () => window.removeEventListener('beforeunload', warn);
  }, [busy]);

  if (uploads.length === 0) return null;
  return (
    <Card title={t('images.uploadsTitle')}>
      <Stack>{uploads.map((upload) => <UploadRow key={upload.id} upload={upload} />)}</Stack>
      {busy && <Text size="xs" c="dimmed" mt="sm">{t('images.leaveWarning')}</Text>}
    </Card>
  );
}

function UploadRow({ upload }: { upload: Upload }) {
  const { id, image, file, state, sent, error } = upload;
  const cancel = () => ask({ title: t('images.cancelTitle', { name: labelOf(image) }), body: t('images.cancelHelp'), confirm: t('images.cancelUpload'), dangerous: true, run: () => cancelUpload(id) });
  return (
    <div>
      <Group justify="space-between" wrap="nowrap" gap="sm">
        <Text size="sm" fw={560} truncate>{labelOf(image)}</Text>
        <Group gap={6} wrap="nowrap">
          <Text size="sm" c="dimmed">{detailOf(upload)}</Text>
          {state === 'sending' && <Tooltip label={t('images.pause')}><ActionIcon variant="subtle" color="gray" aria-label={t('images.pause')} onClick={() => pauseUpload(id)}><IconPlayerPause size={16} /></ActionIcon></Tooltip>}
          {(state === 'paused' || state === 'failed') && <Tooltip label={t('images.resume')}><ActionIcon variant="subtle" aria-label={t('images.resume')} onClick={() => resumeUpload(id)}><IconPlayerPlay size={16} /></ActionIcon></Tooltip>}
          {state === 'done' ? <Button size="compact-xs" variant="subtle" onClick={() => forgetUpload(id)}>{t('common.done')}</Button> : <Tooltip label={t('images.cancelUpload')}><ActionIcon variant="subtle" color="gray" aria-label={t('images.cancelUpload')} onClick={cancel}><IconX size={16} /></ActionIcon></Tooltip>}
        </Group>
      </Group>
      <Progress value={(100 * sent) / Math.max(1, file.size)} animated={state === 'sending' || state === 'converting'} color={state === 'failed' ? 'red' : undefined} aria-label={t('images.progress')} />
      {error && <Text size="sm" c="red" mt={4} role="alert">{error.message}</Text>}
    </div>
  );
}

function detailOf({ state, sent, file, bytesPerSecond }: Upload): string {
  if (state === 'paused') return t('images.paused');
  if (state === 'converting') return t('images.converting');
  if (state === 'done') return t('images.ready');
  const amount = t('images.sentOf', { sent: formatBytes(sent, language()), total: formatBytes(file.size, language()) });
  if (bytesPerSecond <= 0) return amount;
  const seconds = Math.ceil((file.size - sent) / bytesPerSecond);
  const time = seconds > 90 ? `${Math.ceil(seconds / 60)} min` : `${seconds} s`;
  return `${amount} · ${formatBytes(bytesPerSecond, language())}/s · ${t('images.remaining', { time })}`;
}
