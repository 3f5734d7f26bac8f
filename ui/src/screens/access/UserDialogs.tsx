import { Button, Select, Stack, TagsInput, Text, TextInput } from '@mantine/core';
import { IconPlus, IconRefresh } from '@tabler/icons-react';
import { useState } from 'react';
import { createObject } from '@/api/client';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName, randomPassword, randomSuffix } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { bindingFor } from './grants';
import { Once } from './Once';
import { shortest } from './password';
import { useAllTokens } from './useAccess';
import type { LocalUser } from './user';
import { createUser, masters, resetPassword, setGroups, userSecret, usersNamespace } from './user';

export function NewUserButton() {
  const can = useCan(usersNamespace);
  if (!can('create', kinds.secrets)) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NewUserDialog onClose={close} />)}>{t('access.newUser')}</Button>;
}

/** The roles that most people need; all others can be given afterwards. */
const usual = ['cluster-admin', 'admin', 'edit', 'view'] as const;

function NewUserDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [groups, setGroupsText] = useState<string[]>([]);
  const [role, setRole] = useState<string>('view');
  const [password, setPassword] = useState(randomPassword);
  const [suffix] = useState(() => randomSuffix());
  const binding = role ? bindingFor(`${name}-${role}-${suffix}`, { kind: 'User', name, apiGroup: 'rbac.authorization.k8s.io' }, { kind: 'ClusterRole', name: role }, '') : null;
  return (
    <FormDialog
      title={t('access.newUser')}
      onClose={onClose}
      submitLabel={t('common.create')}
      incomplete={!isValidName(name) || password.length < shortest}
      placed={['metadata.name']}
      objects={[userSecret(name, groups, t('access.hashOf')), ...(binding ? [binding] : [])]}
      run={async () => {
        await createUser(name, groups, password);
        if (binding) await createObject(kinds.clusterRoleBindings, binding);
        openDialog((close) => <Once title={t('access.userMade', { name })} secret={password} onClose={close}>{t('access.userMadeHelp')}</Once>);
      }}
    >
      {(error) => (
        <Stack>
          <NameInput label={t('access.userName')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
          <Select label={t('access.mayWhat')} description={t('access.mayWhatHelp')} clearable data={usual.map((each) => ({ value: each, label: t(`access.usual_${each}`) }))} value={role || null} onChange={(next) => setRole(next ?? '')} />
          <TagsInput label={t('access.groups')} description={t('access.groupsHelp')} value={groups} onChange={setGroupsText} acceptValueOnBlur />
          <PasswordField value={password} onChange={setPassword} />
        </Stack>
      )}
    </FormDialog>
  );
}

/** Made up, readable, and to be changed by its owner at once: nothing to hide from who makes it. */
function PasswordField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <TextInput
      label={t('access.firstPassword')}
      description={t('access.firstPasswordHelp')}
      required
      autoComplete="off"
      spellCheck={false}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={value.length < shortest ? t('access.passwordShort', { count: shortest }) : undefined}
      rightSectionWidth={38}
      rightSection={<Button variant="subtle" color="gray" size="compact-sm" px={6} aria-label={t('access.anotherPassword')} onClick={() => onChange(randomPassword())}><IconRefresh size={16} /></Button>}
    />
  );
}

export function ResetPasswordDialog({ user, onClose }: { user: LocalUser; onClose: () => void }) {
  const [password, setPassword] = useState(randomPassword);
  const { tokens } = useAllTokens();
  return (
    <FormDialog
      title={t('access.resetTitle', { name: user.name })}
      onClose={onClose}
      submitLabel={t('access.resetPassword')}
      incomplete={password.length < shortest}
      run={async () => {
        await resetPassword(user, password, tokens);
        openDialog((close) => <Once title={t('access.passwordSet', { name: user.name })} secret={password} onClose={close}>{t('access.userMadeHelp')}</Once>);
      }}
    >
      <Stack>
        <Text>{t('access.resetHelp')}</Text>
        <PasswordField value={password} onChange={setPassword} />
      </Stack>
    </FormDialog>
  );
}

export function GroupsDialog({ user, onClose }: { user: LocalUser; onClose: () => void }) {
  const [groups, setGroupsText] = useState(user.groups);
  return (
    <FormDialog
      title={t('access.groupsTitle', { name: user.name })}
      onClose={onClose}
      submitLabel={t('common.save')}
      run={async () => {
        await setGroups(user, groups);
        say(t('common.saved'));
      }}
    >
      <Stack>
        <TagsInput label={t('access.groups')} description={t('access.groupsHelp')} value={groups} onChange={setGroupsText} acceptValueOnBlur data-autofocus />
        {groups.includes(masters) && <Text size="sm" c="var(--croft-warn)">{t('access.mastersHelp')}</Text>}
      </Stack>
    </FormDialog>
  );
}
