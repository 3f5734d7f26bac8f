import { Tabs } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useAddress } from '@/app/address';
import { t } from '@/i18n';
import { PageHead } from '@/parts/Page';
import { GrantsTab } from './GrantsTab';
import { NewGrantButton } from './GrantDialog';
import { NewRoleButton } from './RoleDialog';
import { RolesTab } from './RolesTab';
import { NewTokenButton } from './TokenDialog';
import { TokensTab } from './TokensTab';
import { NewUserButton } from './UserDialogs';
import { UsersTab } from './UsersTab';

const tabs = {
  users: { content: <UsersTab />, action: <NewUserButton /> },
  grants: { content: <GrantsTab />, action: <NewGrantButton /> },
  roles: { content: <RolesTab />, action: <NewRoleButton /> },
  tokens: { content: <TokensTab />, action: <NewTokenButton /> },
} satisfies Record<string, { content: ReactNode; action: ReactNode }>;
type TabId = keyof typeof tabs;

/** Users, what they may do, and their tokens. */
export function Screen() {
  const { tab = 'users' } = useAddress();
  const navigate = useNavigate();
  const current: TabId = tab in tabs ? (tab as TabId) : 'users';
  return (
    <>
      <PageHead title={t('access.title')} actions={tabs[current].action} />
      <Tabs value={current} onChange={(value) => void navigate({ to: value === 'users' ? '/access' : `/access/${value}` })} mb="md">
        <Tabs.List style={{ flexWrap: 'nowrap', overflowX: 'auto', overflowY: 'hidden' }}>
          {(Object.keys(tabs) as TabId[]).map((id) => <Tabs.Tab key={id} value={id} style={{ flex: 'none' }}>{t(`access.${id}`)}</Tabs.Tab>)}
        </Tabs.List>
      </Tabs>
      {tabs[current].content}
    </>
  );
}
