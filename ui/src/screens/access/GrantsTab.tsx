import { ActionIcon, Tooltip } from '@mantine/core';
import { IconShieldCheck, IconShieldX } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useCan, useMay } from '@/api/permissions';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ask } from '@/parts/confirm';
import { say } from '@/parts/notify';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { Time } from '@/parts/Time';
import { NewGrantButton } from './GrantDialog';
import type { Grant } from './grants';
import { bindingKind, isBuiltIn, revoke } from './grants';
import { roleAddress } from './RolesTab';
import { useGrants } from './useAccess';

/** Who may do what: one line for each. */
export function GrantsTab() {
  const { snapshot, grants } = useGrants();
  const columns = useMemo(() => grantColumns(), []);
  const facets = useMemo(() => grantFacets(), []);
  return (
    <DataTable
      id="grants"
      snapshot={snapshot}
      rows={grants}
      columns={columns}
      facets={facets}
      keyOf={rowKey}
      nameOf={rowName}
      defaultSort={{ column: 'origin', descending: true }}
      empty={<Blank icon={IconShieldCheck} title={t('common.empty')}><NewGrantButton /></Blank>}
      menu={rowMenu}
    />
  );
}

const rowKey = (grant: Grant) => grant.key;
const rowName = (grant: Grant) => grant.subject.name;
const rowMenu = (grant: Grant) => <RevokeButton grant={grant} />;

export function RevokeButton({ grant }: { grant: Grant }) {
  const { binding, subject, role, namespace } = grant;
  const can = useCan(namespace);
  const may = useMay('delete', bindingKind(binding));
  if (!(namespace ? can('delete', bindingKind(binding), binding.metadata.name) : may)) return null;
  const run = () =>
    ask({
      title: t('access.revokeTitle', { role, name: subject.name }),
      body: isBuiltIn(binding) ? t('access.revokeBuiltIn') : t('access.revokeHelp', { name: subject.name, where: namespace || t('access.everywhere') }),
      confirm: t('access.revoke'),
      dangerous: true,
      run: async () => {
        await revoke(grant);
        say(t('common.saved'));
      },
    });
  return (
    <Tooltip label={t('access.revoke')}>
      <ActionIcon variant="subtle" color="red" aria-label={t('access.revokeTitle', { role, name: subject.name })} onClick={run}><IconShieldX size={17} /></ActionIcon>
    </Tooltip>
  );
}

export function subjectText({ subject }: Grant): string {
  return subject.kind === 'ServiceAccount' ? `${subject.namespace ?? ''}/${subject.name}` : subject.name;
}

export function subjectKindText({ subject }: Grant): string {
  const kind = subject.kind === 'User' || subject.kind === 'Group' || subject.kind === 'ServiceAccount' ? subject.kind : null;
  return kind ? t(`access.subject${kind}`) : subject.kind;
}

function originText(grant: Grant): string {
  return t(isBuiltIn(grant.binding) ? 'access.builtIn' : 'access.given');
}

function grantColumns(): Column<Grant>[] {
  return [
    { id: 'name', title: t('access.whom'), value: subjectText, width: 'minmax(160px, 1.6fr)', phone: true },
    { id: 'kind', title: t('common.type'), value: subjectKindText, width: 'minmax(110px, 0.8fr)' },
    { id: 'role', title: t('access.role'), value: (grant) => grant.role, cell: (grant) => <Link to={roleAddress(grant.roleKind, grant.role, grant.namespace)}>{grant.role}</Link>, width: 'minmax(150px, 1.6fr)', phone: true },
    { id: 'where', title: t('access.where'), value: (grant) => grant.namespace || t('access.everywhere') },
    { id: 'origin', title: t('access.origin'), value: originText, width: 'minmax(110px, 0.8fr)' },
    { id: 'binding', title: t('access.binding'), value: (grant) => grant.binding.metadata.name, hidden: true },
    { id: 'age', title: t('common.age'), value: (grant) => -Date.parse(grant.binding.metadata.creationTimestamp ?? ''), cell: (grant) => <Time at={grant.binding.metadata.creationTimestamp} />, width: '124px', unsearched: true },
  ];
}

function grantFacets(): Facet<Grant>[] {
  return [
    { id: 'origin', title: t('access.origin'), values: (grant) => [isBuiltIn(grant.binding) ? 'builtIn' : 'given'], label: (value) => t(value === 'builtIn' ? 'access.builtIn' : 'access.given') },
    { id: 'where', title: t('access.where'), values: (grant) => [grant.namespace || '*'], label: (value) => (value === '*' ? t('access.everywhere') : value) },
  ];
}
