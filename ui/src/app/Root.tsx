import { Button } from '@mantine/core';
import { IconPlugConnectedX } from '@tabler/icons-react';
import { Outlet } from '@tanstack/react-router';
import { useEffect } from 'react';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { DialogHost } from '@/parts/dialogs';
import { ChangePasswordPage } from './ChangePassword';
import { resumeSession, useSession } from './session';
import { Shell } from './Shell';
import { SessionOver, SignInPage } from './SignIn';

const retryMs = 3_000;

/** Nothing of the page is there for those who are not signed in. */
export function Root() {
  const session = useSession();

  useEffect(() => {
    if (session.state !== 'unreachable') return;
    const timer = setInterval(() => void resumeSession(), retryMs);
    return () => clearInterval(timer);
  }, [session.state]);

  if (session.state === 'unknown') return null;
  if (session.state === 'unreachable') {
    return (
      <Blank icon={IconPlugConnectedX} title={t('common.disconnected')} text={t('common.disconnectedHelp')}>
        <Button variant="default" onClick={() => void resumeSession()}>{t('common.retry')}</Button>
      </Blank>
    );
  }
  if (session.state === 'signedOut') return <SignInPage />;
  if (session.user.mustChangePassword) return <ChangePasswordPage user={session.user.name} />;
  return (
    <>
      <Shell>
        <Outlet />
      </Shell>
      <DialogHost />
      {session.expired && <SessionOver user={session.user.name} />}
    </>
  );
}
