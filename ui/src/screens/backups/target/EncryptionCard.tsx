import { Button, Group, Text } from '@mantine/core';
import { IconLock, IconLockOpen } from '@tabler/icons-react';
import { mergePatch } from '@/api/client';
import { useObject } from '@/api/collections';
import type { Secret } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { Facts } from '@/parts/Facts';
import { Card } from '@/parts/Page';
import { Loading } from '@/parts/States';
import { StatusBadge } from '@/parts/StatusBadge';
import { earlierKeys, isEncrypting, replaced, secretName, secretNamespace } from './encryption';
import { KeyDialog } from './KeyDialog';

/** Whether new backups are encrypted. Who may not see the Secret does not see this. */
export function EncryptionCard() {
  const can = useCan(secretNamespace);
  const maySee = can('get', kinds.secrets, secretName);
  const { object: secret, snapshot } = useObject(maySee ? kinds.secrets : null, secretNamespace, secretName);
  if (!maySee) return null;
  const mayEdit = can(secret ? 'update' : 'create', kinds.secrets, secretName);
  const on = isEncrypting(secret);
  return (
    <Card title={t('backups.encryption')}>
      {snapshot.phase === 'loading' ? (
        <Loading />
      ) : (
        <>
          <Facts
            facts={[
              [t('common.state'), <StatusBadge key="state" tone={on ? 'ok' : 'idle'} label={t(on ? 'backups.encrypted' : 'backups.notEncrypted')} />],
              [t('backups.earlierKeys'), earlierKeys(secret).join(', ')],
            ]}
          />
          <Text size="sm" c="dimmed" mt="sm">{t(on ? 'backups.encryptedHelp' : 'backups.notEncryptedHelp')}</Text>
          {mayEdit && (
            <Group mt="md">
              <Button size="xs" variant="default" leftSection={<IconLock size={14} />} onClick={() => openDialog((close) => <KeyDialog secret={secret} onClose={close} />)}>{t(on ? 'backups.changeKey' : 'backups.encrypt')}</Button>
              {on && secret && <Button size="xs" variant="subtle" color="red" leftSection={<IconLockOpen size={14} />} onClick={() => stop(secret)}>{t('backups.stopEncrypting')}</Button>}
            </Group>
          )}
        </>
      )}
    </Card>
  );
}

function stop(secret: Secret): void {
  ask({
    title: t('backups.stopEncrypting'),
    body: t('backups.stopEncryptingHelp'),
    confirm: t('backups.stopEncrypting'),
    dangerous: true,
    run: () => mergePatch(kinds.secrets, secret, { data: replaced(secret, null, new Date()) }),
  });
}
