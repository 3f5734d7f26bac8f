import { Menu } from '@mantine/core';
import { IconKey, IconShieldPlus, IconTrash, IconUsersGroup } from '@tabler/icons-react';
import { deleteObject } from '@/api/client';
import { kinds } from '@/api/kinds';
import { useCan, useMay } from '@/api/permissions';
import { useSession } from '@/app/session';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { say } from '@/parts/notify';
import { GrantDialog } from './GrantDialog';
import type { LocalUser } from './user';
import { usersNamespace } from './user';
import { GroupsDialog, ResetPasswordDialog } from './UserDialogs';

/** What can be done with a user. */
export function UserItems({ user }: { user: LocalUser }) {
  const can = useCan(usersNamespace);
  const mayGrant = useMay('create', kinds.clusterRoleBindings);
  const session = useSession();
  const isMe = session.state === 'signedIn' && session.user.name === user.name;
  const mayUpdate = can('update', kinds.secrets, user.secret.metadata.name);
  const remove = () =>
    ask({
      title: t('common.deleteTitle', { name: user.name }),
      body: t('access.deleteUserHelp'),
      confirm: t('common.delete'),
      dangerous: true,
      typed: user.name,
      run: async () => {
        await deleteObject(kinds.secrets, user.secret);
        say(t('common.actionDone', { action: t('common.delete'), name: user.name }));
      },
    });
  return (
    <>
      {mayGrant && <Menu.Item leftSection={<IconShieldPlus size={16} />} onClick={() => openDialog((close) => <GrantDialog subject={{ kind: 'User', name: user.name }} onClose={close} />)}>{t('access.newGrant')}</Menu.Item>}
      {mayUpdate && <Menu.Item leftSection={<IconUsersGroup size={16} />} onClick={() => openDialog((close) => <GroupsDialog user={user} onClose={close} />)}>{t('access.editGroups')}</Menu.Item>}
      {mayUpdate && !isMe && <Menu.Item leftSection={<IconKey size={16} />} onClick={() => openDialog((close) => <ResetPasswordDialog user={user} onClose={close} />)}>{t('access.resetPassword')}</Menu.Item>}
      {!isMe && can('delete', kinds.secrets, user.secret.metadata.name) && (
        <>
          <Menu.Divider />
          <Menu.Item c="red" leftSection={<IconTrash size={16} />} onClick={remove}>{t('common.delete')}</Menu.Item>
        </>
      )}
    </>
  );
}
