import { Stack } from '@mantine/core';
import { useObject } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { PageHead } from '@/parts/Page';
import { ObjectStates } from '@/parts/States';
import { BackupSections } from '../BackupSections';
import { EncryptionCard } from './EncryptionCard';
import { TargetForm } from './TargetForm';
import { TargetStatus } from './TargetStatus';
import { TuningCard } from './TuningCard';

/** Where backups go, whether that works, and how they are written. */
export function Screen() {
  const { snapshot } = useObject(kinds.settings, undefined, 'backup-target');
  return (
    <>
      <PageHead title={t('backups.target')} parent={{ title: t('backups.title'), to: '/backups' }} />
      <BackupSections current="/backup-target" />
      <ObjectStates snapshot={snapshot} name="backup-target">
        {(setting) => (
          <Stack maw={860}>
            <TargetStatus setting={setting} />
            <TargetForm key={setting.value ?? ''} setting={setting} />
            <EncryptionCard />
            <TuningCard />
          </Stack>
        )}
      </ObjectStates>
    </>
  );
}
