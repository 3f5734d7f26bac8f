import { Button, Center, Code, Loader } from '@mantine/core';
import { IconAlertTriangle, IconLock, IconPlugConnectedX, IconTrashX } from '@tabler/icons-react';
import type { ReactNode } from 'react';
import type { Snapshot } from '@/api/collection';
import type { ApiError } from '@/api/errors';
import { t } from '@/i18n';
import { Blank } from './Blank';

interface StatesProps<T> {
  snapshot: Snapshot<T>;
  /** Shown when all is well and there is nothing. */
  empty: ReactNode;
  children: ReactNode;
}

/** Loading, failed, forbidden, disconnected, empty: the same everywhere. */
export function States<T>({ snapshot, empty, children }: StatesProps<T>) {
  if (snapshot.items.length > 0) return <>{children}</>;
  if (snapshot.phase === 'loading') return <Loading />;
  if (snapshot.phase === 'failed' && snapshot.error) return <Failure error={snapshot.error} />;
  return <>{empty}</>;
}

/** For a screen about one object. */
export function ObjectStates<T>({ snapshot, name, children }: { snapshot: Snapshot<T>; name: string; children: (object: T) => ReactNode }) {
  const gone = <Blank icon={IconTrashX} title={t('common.deleted', { name })} text={t('common.deletedHelp')} />;
  const object = snapshot.items[0];
  return <States snapshot={snapshot} empty={gone}>{object && children(object)}</States>;
}

export function Loading() {
  return <Center p="xl" role="status" aria-label={t('common.loading')}><Loader size="sm" type="dots" /></Center>;
}

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  const button = retry && <Button variant="default" onClick={retry}>{t('common.retry')}</Button>;
  if (error.forbidden) {
    return <Blank icon={IconLock} title={t('common.forbidden')} text={t('common.forbiddenHelp')}><Code>{error.message}</Code></Blank>;
  }
  if (error.unreachable) {
    return <Blank icon={IconPlugConnectedX} title={t('common.disconnected')} text={t('common.disconnectedHelp')}>{button}</Blank>;
  }
  return <Blank icon={IconAlertTriangle} title={t('common.failed')}><Code>{error.message}</Code>{button}</Blank>;
}
