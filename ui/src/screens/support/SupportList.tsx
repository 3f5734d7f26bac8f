import { Anchor, Button, Menu, Progress, Text } from '@mantine/core';
import { IconDownload, IconLifebuoy, IconPlus } from '@tabler/icons-react';
import { useMemo } from 'react';
import type { SupportBundle } from '@/api/cluster';
import { keyOf } from '@/api/collection';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { objectAddress } from '@/app/address';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { openDialog } from '@/parts/dialogs';
import { ageColumn, nameColumn } from '@/parts/kind/columns';
import { ObjectMenu } from '@/parts/kind/ObjectMenu';
import { Notice } from '@/parts/Notice';
import { PageHead } from '@/parts/Page';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { downloadAddress, isReady, progressOf, stateOf } from './bundle';
import { NewBundle } from './NewBundle';

export function Screen() {
  const snapshot = useCollection(kinds.supportBundles);
  const columns = useMemo(() => bundleColumns(), []);
  return (
    <>
      <PageHead title={t('support.title')} actions={<CreateButton />} />
      <Text mb="md" maw="80ch" c="dimmed">{t('support.lead')}</Text>
      <Notice mb="md">{t('support.secrets')}</Notice>
      <DataTable
        id="support"
        snapshot={snapshot}
        rows={snapshot.items}
        columns={columns}
        keyOf={keyOf}
        nameOf={(bundle) => bundle.metadata.name}
        defaultSort={{ column: 'age', descending: false }}
        empty={<Blank icon={IconLifebuoy} title={t('support.emptyTitle')} text={t('support.emptyHelp')}><CreateButton /></Blank>}
        menu={rowMenu}
      />
    </>
  );
}

const rowMenu = (bundle: SupportBundle) => (
  <ObjectMenu kind={kinds.supportBundles} object={bundle} address={objectAddress('/support', bundle)}>
    {() => isReady(bundle) && <Menu.Item component="a" href={downloadAddress(bundle)} download leftSection={<IconDownload size={16} />}>{t('common.download')}</Menu.Item>}
  </ObjectMenu>
);

function CreateButton() {
  const can = useCan('harvester-system');
  if (!can('create', kinds.supportBundles)) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NewBundle onClose={close} />)}>{t('support.create')}</Button>;
}

function bundleColumns(): Column<SupportBundle>[] {
  return [
    nameColumn('/support'),
    { id: 'state', title: t('common.state'), value: (bundle) => stateOf(bundle).label, cell: (bundle) => <BundleState bundle={bundle} />, width: 'minmax(170px, 1.2fr)', phone: true },
    { id: 'description', title: t('common.description'), value: (bundle) => bundle.spec.description, width: 'minmax(160px, 2fr)' },
    { id: 'size', title: t('common.size'), value: (bundle) => bundle.status?.filesize, cell: (bundle) => formatBytes(bundle.status?.filesize, language()), width: '110px', align: 'end', unsearched: true },
    { id: 'file', title: t('support.file'), value: (bundle) => bundle.status?.filename, cell: (bundle) => (isReady(bundle) ? <Anchor href={downloadAddress(bundle)} download>{bundle.status?.filename}</Anchor> : '–'), width: 'minmax(180px, 2fr)' },
    ageColumn(),
  ];
}

export function BundleState({ bundle }: { bundle: SupportBundle }) {
  const state = stateOf(bundle);
  if (state.tone !== 'busy') return <StatusBadge {...state} />;
  return <Progress w="100%" maw={160} value={progressOf(bundle)} animated aria-label={state.label} />;
}
