import { Button, SegmentedControl, Select, Stack, Table, Text } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { useState } from 'react';
import { createObject } from '@/api/client';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import type { Role } from '@/api/rbac';
import { useNamespaceNames } from '@/app/namespace';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import type { Choice } from './words';
import { bundles, rulesFor } from './words';

export function NewRoleButton() {
  const mayCreate = useMay('create', kinds.clusterRoles);
  if (!mayCreate) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <RoleDialog onClose={close} />)}>{t('access.newRole')}</Button>;
}

const levels = ['none', 'see', 'change'] as const;

/** A role of one's own, by what people see on this page. Finer ones are written as YAML. */
function RoleDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState('');
  const [choice, setChoice] = useState<Choice>({ machines: 'see' });
  const namespaces = useNamespaceNames();
  const rules = rulesFor(choice);
  const role: Role = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: namespace ? 'Role' : 'ClusterRole', metadata: { name, ...(namespace && { namespace }) }, rules };
  return (
    <FormDialog
      title={t('access.newRole')}
      onClose={onClose}
      size="lg"
      submitLabel={t('common.create')}
      incomplete={!isValidName(name) || rules.length === 0}
      placed={['metadata.name']}
      objects={[role]}
      command={`kubectl create -f ${name || 'role'}.yaml`}
      run={async () => {
        await createObject(namespace ? kinds.roles : kinds.clusterRoles, role);
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack>
          <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
          <Select label={t('access.usable')} clearable searchable placeholder={t('access.everywhere')} data={namespaces} value={namespace || null} onChange={(next) => setNamespace(next ?? '')} />
          <Text size="sm" c="dimmed">{t('access.newRoleHelp')}</Text>
          <Table verticalSpacing={4}>
            <Table.Tbody>
              {bundles.map(({ id, label }) => (
                <Table.Tr key={id}>
                  <Table.Td id={`bundle-${id}`}>{t(label)}</Table.Td>
                  <Table.Td ta="right"><SegmentedControl size="xs" aria-labelledby={`bundle-${id}`} value={choice[id] ?? 'none'} onChange={(level) => setChoice({ ...choice, [id]: level as Choice[string] })} data={levels.map((level) => ({ value: level, label: t(`access.level_${level}`) }))} /></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Stack>
      )}
    </FormDialog>
  );
}
