import { IconShield } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { keyOf } from '@/api/collection';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import type { Role } from '@/api/rbac';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ObjectMenu } from '@/parts/kind/ObjectMenu';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { Time } from '@/parts/Time';
import { NewRoleButton } from './RoleDialog';
import { isBuiltInRole, roleText } from './words';

export function roleAddress(kind: string, name: string, namespace: string): string {
  return kind === 'Role' ? `/access/roles/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` : `/access/cluster-roles/${encodeURIComponent(name)}`;
}

function addressOf(role: Role): string {
  const { name, namespace } = role.metadata;
  return roleAddress(namespace ? 'Role' : 'ClusterRole', name, namespace ?? '');
}

export function RolesTab() {
  const clusterRoles = useCollection(kinds.clusterRoles);
  const roles = useCollection(kinds.roles);
  const rows = useMemo(() => [...clusterRoles.items, ...roles.items], [clusterRoles.items, roles.items]);
  const columns = useMemo(() => roleColumns(), []);
  const facets = useMemo(() => roleFacets(), []);
  return (
    <DataTable
      id="roles"
      snapshot={{ ...(clusterRoles.phase === 'failed' ? roles : clusterRoles), items: rows }}
      rows={rows}
      columns={columns}
      facets={facets}
      keyOf={keyOf}
      nameOf={rowName}
      defaultSort={{ column: 'name', descending: false }}
      empty={<Blank icon={IconShield} title={t('common.empty')}><NewRoleButton /></Blank>}
      menu={rowMenu}
    />
  );
}

const rowName = (role: Role) => role.metadata.name;
const rowMenu = (role: Role) => <ObjectMenu kind={role.metadata.namespace ? kinds.roles : kinds.clusterRoles} object={role} address={addressOf(role)} deleteHelp={t('access.deleteRoleHelp')} />;

function roleColumns(): Column<Role>[] {
  return [
    { id: 'name', title: t('common.name'), value: rowName, cell: (role) => <Link to={addressOf(role)}>{role.metadata.name}</Link>, width: 'minmax(180px, 1.4fr)', phone: true },
    { id: 'words', title: t('access.may'), value: roleText, width: 'minmax(220px, 3fr)', phone: true },
    { id: 'where', title: t('access.usable'), value: (role) => role.metadata.namespace ?? t('access.everywhere') },
    { id: 'origin', title: t('access.origin'), value: (role) => t(isBuiltInRole(role) ? 'access.builtIn' : 'access.own'), width: 'minmax(110px, 0.8fr)' },
    { id: 'age', title: t('common.age'), value: (role) => -Date.parse(role.metadata.creationTimestamp ?? ''), cell: (role) => <Time at={role.metadata.creationTimestamp} />, width: '124px', unsearched: true },
  ];
}

function roleFacets(): Facet<Role>[] {
  return [{ id: 'origin', title: t('access.origin'), values: (role) => [isBuiltInRole(role) ? 'builtIn' : 'own'], label: (value) => t(value === 'own' ? 'access.own' : 'access.builtIn') }];
}
