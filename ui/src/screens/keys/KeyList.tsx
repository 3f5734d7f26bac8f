import { Button, Group } from '@mantine/core';
import { IconKey, IconPlus, IconWand } from '@tabler/icons-react';
import { useMemo } from 'react';
import type { KeyPair } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column } from '@/parts/table/columns';
import { parsePublicKey, stateOf } from './key';
import { GenerateKeyDialog, PasteKeyDialog } from './KeyDialogs';
import { KeyState } from './KeyState';

export function Screen() {
  const columns = useMemo(() => keyColumns(), []);
  return (
    <KindList
      kind={kinds.keyPairs}
      area="/keys"
      title={t('keys.title')}
      icon={IconKey}
      columns={columns}
      emptyTitle={t('keys.emptyTitle')}
      emptyHelp={t('keys.emptyHelp')}
      create={<CreateButtons />}
      deleteHelp={t('keys.deleteHelp')}
    />
  );
}

function CreateButtons() {
  const may = useMayCreate(kinds.keyPairs);
  if (!may) return null;
  return (
    <Group gap="xs">
      <Button variant="default" leftSection={<IconWand size={17} />} onClick={() => openDialog((close) => <GenerateKeyDialog onClose={close} />)}>{t('keys.generate')}</Button>
      <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <PasteKeyDialog onClose={close} />)}>{t('keys.add')}</Button>
    </Group>
  );
}

function keyColumns(): Column<KeyPair>[] {
  return [
    nameColumn('/keys'),
    { id: 'state', title: t('common.state'), value: (pair) => t(`keys.${stateOf(pair).state}`), cell: (pair) => <KeyState pair={pair} />, width: '130px', phone: true },
    namespaceColumn(),
    { id: 'algorithm', title: t('common.type'), value: (pair) => parsePublicKey(pair.spec.publicKey)?.algorithm, width: '130px' },
    { id: 'comment', title: t('keys.comment'), value: (pair) => parsePublicKey(pair.spec.publicKey)?.comment, cell: (pair) => parsePublicKey(pair.spec.publicKey)?.comment || '–' },
    { id: 'fingerprint', title: t('keys.fingerprint'), value: (pair) => pair.status?.fingerPrint, cell: (pair) => <code style={{ fontSize: 12 }}>{pair.status?.fingerPrint ?? '–'}</code>, width: 'minmax(180px, 2fr)' },
    ageColumn(),
  ];
}
