import { ActionIcon, Menu, Stack, Table, Text } from '@mantine/core';
import { IconDotsVertical } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useObject } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useAddress } from '@/app/address';
import { t } from '@/i18n';
import { Facts } from '@/parts/Facts';
import { Card, PageHead } from '@/parts/Page';
import { ObjectStates } from '@/parts/States';
import { Time } from '@/parts/Time';
import { isBuiltIn, reaches } from './grants';
import { RevokeButton, subjectText } from './GrantsTab';
import { roleAddress } from './RolesTab';
import { tokenKindText, TokenMenu } from './TokensTab';
import { useAllTokens, useGrants } from './useAccess';
import type { LocalUser } from './user';
import { masters, userOf, usersNamespace } from './user';
import { UserItems } from './UserItems';

export function Screen() {
  const { name = '' } = useAddress();
  const { snapshot } = useObject(kinds.secrets, usersNamespace, `user-${name}`);
  return <ObjectStates snapshot={snapshot} name={name}>{(secret) => <Detail user={userOf(secret)} />}</ObjectStates>;
}

function Detail({ user }: { user: LocalUser }) {
  return (
    <>
      <PageHead
        title={user.name}
        parent={{ title: t('access.title'), to: '/access' }}
        actions={
          <Menu width={220}>
            <Menu.Target><ActionIcon variant="default" size={36} aria-label={t('common.actionsFor', { name: user.name })}><IconDotsVertical size={18} /></ActionIcon></Menu.Target>
            <Menu.Dropdown><UserItems user={user} /></Menu.Dropdown>
          </Menu>
        }
      />
      <Stack>
        <Card title={t('common.overview')}>
          <Facts
            facts={[
              [t('access.groups'), user.groups.join(', ') || '–'],
              [t('access.password'), t(user.mustChangePassword ? 'access.passwordNew' : 'access.passwordOwn')],
              [t('common.created'), <Time key="created" at={user.secret.metadata.creationTimestamp} />],
            ]}
          />
        </Card>
        <Rights user={user} />
        <Tokens user={user} />
      </Stack>
    </>
  );
}

/** What the user may do, and why: by name, by a group, or as everybody. */
function Rights({ user }: { user: LocalUser }) {
  const { grants } = useGrants();
  const reaching = grants.filter((grant) => reaches(grant, user.name, user.groups));
  // What somebody gave comes first; what everybody has is long and the same for all.
  const own = [...reaching.filter((grant) => !isBuiltIn(grant.binding)), ...reaching.filter((grant) => isBuiltIn(grant.binding))];
  return (
    <Card title={t('access.may')}>
      {user.groups.includes(masters) && <Text size="sm" mb="xs">{t('access.mastersHelp')}</Text>}
      <Table.ScrollContainer minWidth={420}>
        <Table verticalSpacing={6}>
          <Table.Tbody>
            {own.map((grant) => (
              <Table.Tr key={grant.key}>
                <Table.Td fw={560}><Link to={roleAddress(grant.roleKind, grant.role, grant.namespace)}>{grant.role}</Link></Table.Td>
                <Table.Td>{grant.namespace || t('access.everywhere')}</Table.Td>
                <Table.Td><Text size="sm" c="dimmed">{grant.subject.kind === 'User' ? '' : t('access.through', { group: subjectText(grant) })}</Text></Table.Td>
                <Table.Td ta="right">{grant.subject.kind === 'User' && !isBuiltIn(grant.binding) && <RevokeButton grant={grant} />}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}

function Tokens({ user }: { user: LocalUser }) {
  const { tokens } = useAllTokens();
  const own = tokens.filter((token) => token.user === user.name);
  return (
    <Card title={t('access.tokens')}>
      {own.length === 0 && <Text size="sm" c="dimmed">{t('common.none')}</Text>}
      <Table verticalSpacing={6}>
        <Table.Tbody>
          {own.map((token) => (
            <Table.Tr key={token.id}>
              <Table.Td fw={560}>{token.id}</Table.Td>
              <Table.Td>{tokenKindText(token)}</Table.Td>
              <Table.Td>{token.description}</Table.Td>
              <Table.Td><Time at={token.created} /></Table.Td>
              <Table.Td ta="right"><TokenMenu token={token} /></Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  );
}
