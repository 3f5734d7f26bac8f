import { Tooltip } from '@mantine/core';
import { useEffect, useState } from 'react';
import { connection } from '@/api/connection';
import { useConnected } from '@/api/collections';
import { t } from '@/i18n';
import classes from './Shell.module.css';

/** A hiccup of less than this is nobody's business. */
const patienceMs = 800;

export function ConnectionState({ compact }: { compact: boolean }) {
  const connected = useConnected();
  const [late, setLate] = useState(false);
  const broken = !connected && late;

  useEffect(() => {
    if (connected) return;
    const timer = setTimeout(() => setLate(true), patienceMs);
    return () => {
      clearTimeout(timer);
      setLate(false);
    };
  }, [connected]);

  useEffect(() => {
    window.addEventListener('online', connection.wake);
    return () => window.removeEventListener('online', connection.wake);
  }, []);

  const label = broken ? t('app.reconnecting') : t('app.live');
  return (
    <Tooltip label={broken ? t('app.reconnectingHelp') : t('app.liveHelp')} multiline w={260}>
      <span className={classes.connection} data-broken={broken || undefined} role="status" aria-label={label}>
        {(!compact || broken) && label}
      </span>
    </Tooltip>
  );
}
