import { Table, Text } from '@mantine/core';
import type { Kind } from '@/api/kinds';
import { kinds } from '@/api/kinds';
import type { Role } from '@/api/rbac';
import { useAddress } from '@/app/address';
import { t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { subjectKindText, subjectText } from './GrantsTab';
import { useGrants } from './useAccess';
import { isBuiltInRole, levelText, objectsText, roleText } from './words';

/** A role that can be used everywhere, or one of a namespace: the address says which. */
export function Screen() {
  const { namespace } = useAddress();
  const kind: Kind<Role> = namespace ? kinds.roles : kinds.clusterRoles;
  return (
    <KindDetail
      kind={kind}
      area={namespace ? '/access/roles' : '/access/cluster-roles'}
      parent={t('access.title')}
      facts={(role) => [
        [t('access.may'), roleText(role)],
        [t('access.origin'), t(isBuiltInRole(role) ? 'access.builtIn' : 'access.own')],
      ]}
      body={body}
      deleteHelp={t('access.deleteRoleHelp')}
    />
  );
}

const body = (role: Role) => <><Rules role={role} /><Holders role={role} /></>;

function Rules({ role }: { role: Role }) {
  const rules = role.rules ?? [];
  return (
    <Card title={t('access.rules')}>
      {rules.length === 0 && <Text size="sm" c="dimmed">{t('common.none')}</Text>}
      <Table verticalSpacing="xs">
        <Table.Tbody>
          {rules.map((rule) => (
            <Table.Tr key={JSON.stringify(rule)} style={{ verticalAlign: 'top' }}>
              <Table.Td w={160} fw={560}>{levelText(rule)}</Table.Td>
              <Table.Td>
                <Text size="sm" style={{ overflowWrap: 'anywhere' }}>{objectsText(rule)}</Text>
                {rule.resourceNames && rule.resourceNames.length > 0 && <Text size="xs" c="dimmed">{t('access.onlyNamed', { names: rule.resourceNames.join(', ') })}</Text>}
              </Table.Td>
              <Table.Td><Text size="xs" c="dimmed">{rule.apiGroups?.map((group) => group || 'core').join(', ')}</Text></Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  );
}

function Holders({ role }: { role: Role }) {
  const { grants } = useGrants();
  const { name, namespace } = role.metadata;
  const holders = grants.filter((grant) => grant.role === name && (namespace ? grant.roleKind === 'Role' && grant.namespace === namespace : grant.roleKind === 'ClusterRole'));
  return (
    <Card title={t('access.holders')}>
      {holders.length === 0 && <Text size="sm" c="dimmed">{t('access.nobody')}</Text>}
      <Table verticalSpacing={6}>
        <Table.Tbody>
          {holders.map((grant) => (
            <Table.Tr key={grant.key}>
              <Table.Td fw={560}>{subjectText(grant)}</Table.Td>
              <Table.Td>{subjectKindText(grant)}</Table.Td>
              <Table.Td>{grant.namespace || t('access.everywhere')}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  );
}
