import { Button, Group, SegmentedControl, Select, Stack, Text, TextInput } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { useMemo, useState } from 'react';
import { createObject } from '@/api/client';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import type { Subject } from '@/api/rbac';
import { useNamespaceNames } from '@/app/namespace';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { nameFrom, randomSuffix } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { bindingFor, bindingKind } from './grants';
import { isBuiltInRole, roleText } from './words';

export function NewGrantButton({ namespace }: { namespace?: string }) {
  const mayGrant = useMay('create', namespace ? kinds.roleBindings : kinds.clusterRoleBindings);
  if (!mayGrant) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <GrantDialog namespace={namespace} onClose={close} />)}>{t('access.newGrant')}</Button>;
}

interface GrantDialogProps {
  subject?: Subject;
  namespace?: string | undefined;
  onClose: () => void;
}

const subjectKinds = ['User', 'Group', 'ServiceAccount'] as const;
/** These come first: they are made for people. */
const usual = ['cluster-admin', 'admin', 'edit', 'view'];

/** Gives somebody a role, everywhere or in one namespace. */
export function GrantDialog({ subject: given, namespace: where, onClose }: GrantDialogProps) {
  const [kind, setKind] = useState<string>(given?.kind ?? 'User');
  const [name, setName] = useState(given?.name ?? '');
  const [accountNamespace, setAccountNamespace] = useState(given?.namespace ?? 'default');
  const [namespace, setNamespace] = useState(where ?? '');
  const [role, setRole] = useState('');
  const [suffix] = useState(() => randomSuffix());
  const namespaces = useNamespaceNames();
  const { options, help } = useRoleOptions(namespace);
  const subject: Subject = kind === 'ServiceAccount' ? { kind, name, namespace: accountNamespace } : { kind, name, apiGroup: 'rbac.authorization.k8s.io' };
  const [roleKind = '', roleName = ''] = role.split('/');
  const binding = bindingFor(`${nameFrom(`${name}-${roleName}`)}-${suffix}`, subject, { kind: roleKind, name: roleName }, namespace);
  const flag = kind === 'User' ? `--user=${name}` : kind === 'Group' ? `--group=${name}` : `--serviceaccount=${accountNamespace}:${name}`;
  return (
    <FormDialog
      title={t('access.newGrant')}
      onClose={onClose}
      submitLabel={t('access.grant')}
      incomplete={name.trim() === '' || role === ''}
      placed={['subjects', 'roleRef']}
      objects={[binding]}
      command={`kubectl create ${namespace ? `rolebinding -n ${namespace}` : 'clusterrolebinding'} ${binding.metadata.name} --${roleKind.toLowerCase()}=${roleName} ${flag}`}
      run={async () => {
        await createObject(bindingKind(binding), binding);
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack>
          {!given && (
            <div>
              <Text size="sm" fw={500} mb={4}>{t('access.whom')}</Text>
              <SegmentedControl fullWidth value={kind} onChange={setKind} data={subjectKinds.map((each) => ({ value: each, label: t(`access.subject${each}`) }))} />
            </div>
          )}
          {!given && (
            <Group grow align="flex-start">
              {kind === 'ServiceAccount' && <Select label={t('common.namespace')} data={namespaces} searchable allowDeselect={false} value={accountNamespace} onChange={(next) => setAccountNamespace(next ?? 'default')} />}
              <TextInput label={t('common.name')} required data-autofocus autoComplete="off" spellCheck={false} value={name} onChange={(event) => setName(event.currentTarget.value)} error={refusalOf(error, 'subjects')} />
            </Group>
          )}
          {where === undefined && <Select label={t('access.where')} clearable searchable placeholder={t('access.everywhere')} data={namespaces} value={namespace || null} onChange={(next) => { setNamespace(next ?? ''); if (role.startsWith('Role/')) setRole(''); }} />}
          <Select label={t('access.role')} required searchable data={options} value={role || null} onChange={(next) => setRole(next ?? '')} error={refusalOf(error, 'roleRef')} />
          {role && <Text size="sm" c="dimmed">{help(role)}</Text>}
        </Stack>
      )}
    </FormDialog>
  );
}

function useRoleOptions(namespace: string) {
  const clusterRoles = useCollection(kinds.clusterRoles).items;
  const roles = useCollection(kinds.roles).items;
  return useMemo(() => {
    const own = roles.filter((role) => namespace !== '' && role.metadata.namespace === namespace);
    const rank = (name: string) => (usual.includes(name) ? usual.indexOf(name) : usual.length);
    const sorted = [...clusterRoles].sort((a, b) => rank(a.metadata.name) - rank(b.metadata.name) || Number(isBuiltInRole(a)) - Number(isBuiltInRole(b)) || a.metadata.name.localeCompare(b.metadata.name));
    const options = [...own.map((role) => ({ value: `Role/${role.metadata.name}`, label: role.metadata.name })), ...sorted.map((role) => ({ value: `ClusterRole/${role.metadata.name}`, label: role.metadata.name }))];
    const help = (value: string) => {
      const name = value.slice(value.indexOf('/') + 1);
      const role = value.startsWith('Role/') ? own.find((each) => each.metadata.name === name) : clusterRoles.find((each) => each.metadata.name === name);
      return role ? roleText(role) : '';
    };
    return { options, help };
  }, [clusterRoles, roles, namespace]);
}
