import { ActionIcon, Menu } from '@mantine/core';
import { IconDotsVertical, IconUsers } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { keyOf } from '@/api/collection';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { Time } from '@/parts/Time';
import type { Grant } from './grants';
import { isBuiltIn, reaches } from './grants';
import { useGrants, useUsers } from './useAccess';
import type { LocalUser } from './user';
import { masters } from './user';
import { NewUserButton } from './UserDialogs';
import { UserItems } from './UserItems';

export function UsersTab() {
  const { snapshot, users } = useUsers();
  const { grants } = useGrants();
  const columns = useMemo(() => userColumns(grants), [grants]);
  return (
    <DataTable
      id="users"
      snapshot={snapshot}
      rows={users}
      columns={columns}
      keyOf={rowKey}
      nameOf={rowName}
      defaultSort={{ column: 'name', descending: false }}
      empty={<Blank icon={IconUsers} title={t('common.empty')}><NewUserButton /></Blank>}
      menu={rowMenu}
    />
  );
}

const rowKey = (user: LocalUser) => keyOf(user.secret);
const rowName = (user: LocalUser) => user.name;
const rowMenu = (user: LocalUser) => (
  <Menu width={220}>
    <Menu.Target><ActionIcon variant="subtle" color="gray" aria-label={t('common.actionsFor', { name: user.name })}><IconDotsVertical size={17} /></ActionIcon></Menu.Target>
    <Menu.Dropdown><UserItems user={user} /></Menu.Dropdown>
  </Menu>
);

/** The roles of a user in short: what everybody has is left out. */
function rolesText(user: LocalUser, grants: readonly Grant[]): string {
  if (user.groups.includes(masters)) return t('access.mayEverything');
  const own = grants.filter((grant) => !isBuiltIn(grant.binding) && reaches(grant, user.name, user.groups));
  return own.map(({ role, namespace }) => (namespace ? t('access.roleIn', { role, namespace }) : t('access.roleEverywhere', { role }))).join(', ') || t('access.mayNothing');
}

function userColumns(grants: readonly Grant[]): Column<LocalUser>[] {
  return [
    { id: 'name', title: t('common.name'), value: rowName, cell: (user) => <Link to={`/access/users/${encodeURIComponent(user.name)}`}>{user.name}</Link>, width: 'minmax(140px, 1fr)', phone: true },
    { id: 'roles', title: t('access.may'), value: (user) => rolesText(user, grants), width: 'minmax(180px, 2fr)', phone: true },
    { id: 'groups', title: t('access.groups'), value: (user) => user.groups.join(', '), cell: (user) => user.groups.join(', ') || '–' },
    { id: 'password', title: t('access.password'), value: (user) => (user.mustChangePassword ? 1 : 0), cell: (user) => <StatusBadge tone={user.mustChangePassword ? 'warn' : 'ok'} label={t(user.mustChangePassword ? 'access.passwordNew' : 'access.passwordOwn')} />, width: 'minmax(150px, 1fr)', unsearched: true },
    { id: 'age', title: t('common.age'), value: (user) => -Date.parse(user.secret.metadata.creationTimestamp ?? ''), cell: (user) => <Time at={user.secret.metadata.creationTimestamp} />, width: '124px', unsearched: true },
  ];
}
