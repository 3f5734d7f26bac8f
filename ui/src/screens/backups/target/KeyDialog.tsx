import { Alert, Button, Checkbox, Group, PasswordInput, Text } from '@mantine/core';
import { IconDownload } from '@tabler/icons-react';
import { useState } from 'react';
import { createObject, mergePatch } from '@/api/client';
import type { Secret } from '@/api/core';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { say } from '@/parts/notify';
import { saveText } from '@/parts/saveFile';
import { isLongEnough, keyObject, newKey, replaced, secretName, secretNamespace } from './encryption';

/** A key for new backups. Whoever loses it loses the backups, so a copy comes first. */
export function KeyDialog({ secret, onClose }: { secret: Secret | undefined; onClose: () => void }) {
  const [key, setKey] = useState(newKey);
  const [kept, setKept] = useState(false);
  const wrong = !isLongEnough(key);
  const run = async () => {
    if (secret) await mergePatch(kinds.secrets, secret, { data: replaced(secret, key, new Date()) });
    else await createObject(kinds.secrets, keyObject(key));
    say(t('common.saved'));
  };
  const command = `kubectl -n ${secretNamespace} create secret generic ${secretName} --from-file=CRYPTO_KEY_VALUE=key`;
  return (
    <FormDialog title={t(secret ? 'backups.changeKey' : 'backups.encrypt')} onClose={onClose} run={run} submitLabel={t(secret ? 'backups.changeKey' : 'backups.encrypt')} incomplete={wrong || !kept} {...(!secret && { command })}>
      <Text size="sm" c="dimmed">{t('backups.keyHelp')}</Text>
      <Group gap={6} align="flex-end" wrap="nowrap">
        <PasswordInput style={{ flex: 1 }} label={t('backups.key')} value={key} onChange={(event) => { setKey(event.currentTarget.value); setKept(false); }} error={wrong ? t('backups.keyShort') : undefined} autoComplete="off" visibilityToggleButtonProps={{ 'aria-label': t('app.showPassword') }} />
        <Button variant="default" px="sm" leftSection={<IconDownload size={16} />} onClick={() => saveText('croft-backup-key', key, 'text/plain')}>{t('common.download')}</Button>
      </Group>
      <Alert color="yellow">{t('backups.keyWarning')}</Alert>
      <Checkbox label={t('backups.keyKept')} checked={kept} onChange={(event) => setKept(event.currentTarget.checked)} />
    </FormDialog>
  );
}
