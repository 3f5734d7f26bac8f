import { ActionIcon, Menu, Modal, useMantineColorScheme } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconCheck, IconDeviceLaptop, IconFileDownload, IconKey, IconLogout, IconMoon, IconShieldLock, IconSun, IconUserCircle } from '@tabler/icons-react';
import { chooseLanguage, language, languages, t } from '@/i18n';
import { say, sayError } from '@/parts/notify';
import { PasswordForm } from './ChangePassword';
import { downloadKubeconfig } from './kubeconfig';
import { SecondFactorForm } from './SecondFactor';
import { signOut, useSession } from './session';

const schemes = [
  { id: 'auto', label: 'app.auto', icon: IconDeviceLaptop },
  { id: 'light', label: 'app.light', icon: IconSun },
  { id: 'dark', label: 'app.dark', icon: IconMoon },
] as const;

export function UserMenu() {
  const session = useSession();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const [changing, { open, close }] = useDisclosure();
  const [securing, factor] = useDisclosure();
  if (session.state !== 'signedIn') return null;
  const { name } = session.user;

  const kubeconfig = () =>
    downloadKubeconfig().then(
      () => say(t('app.kubeconfigDone')),
      (error: unknown) => sayError(t('app.downloadKubeconfig'), error),
    );

  return (
    <>
      <Menu width={240}>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="lg" radius="xl" aria-label={t('app.userMenu')}>
            <IconUserCircle size={24} stroke={1.5} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Label>{t('app.signedInAs', { name })}</Menu.Label>
          <Menu.Item leftSection={<IconFileDownload size={16} />} onClick={() => void kubeconfig()}>{t('app.downloadKubeconfig')}</Menu.Item>
          <Menu.Item leftSection={<IconKey size={16} />} onClick={open}>{t('app.changePassword')}</Menu.Item>
          <Menu.Item leftSection={<IconShieldLock size={16} />} onClick={factor.open}>{t('app.secondFactor')}</Menu.Item>
          <Menu.Divider />
          <Menu.Label>{t('app.appearance')}</Menu.Label>
          {schemes.map(({ id, label, icon: Symbol }) => (
            <Menu.Item key={id} closeMenuOnClick={false} leftSection={<Symbol size={16} />} rightSection={colorScheme === id ? <IconCheck size={16} /> : null} onClick={() => setColorScheme(id)}>{t(label)}</Menu.Item>
          ))}
          <Menu.Divider />
          <Menu.Label>{t('app.language')}</Menu.Label>
          {languages.map(({ id, name: label }) => (
            <Menu.Item key={id} rightSection={language() === id ? <IconCheck size={16} /> : null} onClick={() => void chooseLanguage(id)}>{label}</Menu.Item>
          ))}
          <Menu.Divider />
          <Menu.Item leftSection={<IconLogout size={16} />} onClick={() => void signOut()}>{t('app.signOut')}</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Modal opened={changing} onClose={close} title={t('app.changePassword')}>
        <PasswordForm user={name} submitLabel={t('common.save')} onDone={() => { close(); say(t('app.passwordChanged')); }} />
      </Modal>
      <Modal opened={securing} onClose={factor.close} closeOnClickOutside={false} title={t('app.secondFactor')}>
        <SecondFactorForm user={name} onDone={(on) => { factor.close(); say(t(on ? 'app.secondFactorOnDone' : 'app.secondFactorOffDone')); }} />
      </Modal>
    </>
  );
}
