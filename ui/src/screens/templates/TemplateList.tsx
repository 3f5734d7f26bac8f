import { Button } from '@mantine/core';
import { IconPlus, IconTemplate } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { VirtualMachineTemplate } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column } from '@/parts/table/columns';
import { TemplateItems } from './TemplateItems';

export function Screen() {
  const columns = useMemo(() => templateColumns(), []);
  return (
    <KindList
      kind={kinds.templates}
      area="/templates"
      title={t('templates.title')}
      icon={IconTemplate}
      columns={columns}
      emptyTitle={t('templates.emptyTitle')}
      emptyHelp={t('templates.emptyHelp')}
      create={<CreateButton />}
      menu={templateMenu}
      deleteHelp={t('templates.deleteHelp')}
    />
  );
}

const templateMenu = (template: VirtualMachineTemplate) => <TemplateItems template={template} />;

function CreateButton() {
  const may = useMayCreate(kinds.templates);
  return may ? <Button component={Link} to="/templates/new" leftSection={<IconPlus size={17} />}>{t('templates.create')}</Button> : null;
}

function templateColumns(): Column<VirtualMachineTemplate>[] {
  return [
    nameColumn('/templates'),
    { id: 'description', title: t('common.description'), value: (template) => template.spec.description, cell: (template) => template.spec.description || '–', width: 'minmax(160px, 2fr)' },
    namespaceColumn(),
    { id: 'default', title: t('templates.defaultVersion'), value: (template) => template.status?.defaultVersion, width: '130px', align: 'end', unsearched: true, phone: true },
    { id: 'latest', title: t('templates.latestVersion'), value: (template) => template.status?.latestVersion, width: '130px', align: 'end', unsearched: true },
    ageColumn(),
  ];
}
