import { Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { t } from '@/i18n';
import { Card } from '@/parts/Page';
import { NewGrantButton } from './GrantDialog';
import { isBuiltIn } from './grants';
import { RevokeButton, subjectKindText, subjectText } from './GrantsTab';
import { roleAddress } from './RolesTab';
import { useGrants } from './useAccess';

/** Who may do what in a namespace, also by what holds everywhere. */
export function GrantsCard({ namespace }: { namespace: string }) {
  const { grants } = useGrants();
  const shown = grants.filter((grant) => grant.namespace === namespace || (grant.namespace === '' && !isBuiltIn(grant.binding)));
  return (
    <Card title={t('access.who')} actions={<NewGrantButton namespace={namespace} />}>
      <Text size="sm" c="dimmed" mb="sm">{t('access.whoHelp')}</Text>
      {shown.length === 0 && <Text size="sm" c="dimmed">{t('common.none')}</Text>}
      <Table.ScrollContainer minWidth={480}>
        <Table verticalSpacing="xs">
          <Table.Tbody>
            {shown.map((grant) => (
              <Table.Tr key={grant.key}>
                <Table.Td fw={560}>{subjectText(grant)}</Table.Td>
                <Table.Td>{subjectKindText(grant)}</Table.Td>
                <Table.Td><Link to={roleAddress(grant.roleKind, grant.role, grant.namespace)}>{grant.role}</Link></Table.Td>
                <Table.Td>{grant.namespace ? '' : t('access.everywhere')}</Table.Td>
                <Table.Td ta="right"><RevokeButton grant={grant} /></Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}
