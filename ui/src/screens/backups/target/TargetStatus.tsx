import { Alert, Button } from '@mantine/core';
import { IconPlugConnected } from '@tabler/icons-react';
import { useState } from 'react';
import { request } from '@/api/client';
import { useObject } from '@/api/collections';
import { asApiError } from '@/api/errors';
import type { Setting } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { Facts } from '@/parts/Facts';
import { Card } from '@/parts/Page';
import { StatusBadge } from '@/parts/StatusBadge';
import { Time } from '@/parts/Time';
import { parseTarget, plain } from './target';

type Tried = { ok: true } | { ok: false; message: string } | null;

/** Whether the stored target works: what the server found last, and what it finds when it is asked now. */
export function TargetStatus({ setting }: { setting: Setting }) {
  const { object: longhorn } = useObject(kinds.backupTargets, 'longhorn-system', 'default');
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState<Tried>(null);
  const target = parseTarget(setting.value);
  if (target.type === '') return <Alert color="croft" title={t('backups.noTarget')}>{t('backups.noTargetHelp')}</Alert>;

  const test = async () => {
    setBusy(true);
    setTried(null);
    try {
      await request('GET', '/v1/harvester/backuptarget/healthz');
      setTried({ ok: true });
    } catch (error) {
      setTried({ ok: false, message: plain(asApiError(error).message) });
    } finally {
      setBusy(false);
    }
  };
  const configured = setting.status?.conditions?.find((condition) => condition.type === 'configured');
  const works = configured?.status !== 'False';
  return (
    <Card title={t('backups.targetState')} actions={<Button size="xs" variant="default" leftSection={<IconPlugConnected size={14} />} loading={busy} onClick={() => void test()}>{t('backups.test')}</Button>}>
      <Facts
        facts={[
          [t('common.state'), <StatusBadge key="state" tone={works ? 'ok' : 'bad'} label={t(works ? 'backups.available' : 'backups.unavailable')} />],
          [t('common.message'), !works && configured?.message],
          [t('backups.address'), longhorn?.spec?.backupTargetURL ?? target.endpoint],
          [t('backups.lookedAt'), longhorn?.status?.lastSyncedAt && <Time key="looked" at={longhorn.status.lastSyncedAt} />],
        ]}
      />
      <div role="status">
        {tried?.ok && <Alert mt="md" color="croft" title={t('backups.testGood')}>{t('backups.testGoodHelp')}</Alert>}
        {tried?.ok === false && <Alert mt="md" color="red" title={t('backups.testBad')}>{tried.message}</Alert>}
      </div>
    </Card>
  );
}
