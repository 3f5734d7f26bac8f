import { Button, Code } from '@mantine/core';
import { IconBug } from '@tabler/icons-react';
import type { ErrorComponentProps } from '@tanstack/react-router';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';

/** A screen that threw. After an upgrade of the server the old page's parts are gone: that is no fault. */
export function Crash({ error }: ErrorComponentProps) {
  const message = error instanceof Error ? error.message : String(error);
  const outdated = /dynamically imported module|Importing a module script failed|preload CSS/i.test(message);
  return (
    <Blank icon={IconBug} title={outdated ? t('app.newVersion') : t('app.crashed')} text={outdated ? '' : t('app.crashedHelp')}>
      {!outdated && <Code block>{message}</Code>}
      <Button onClick={() => window.location.reload()}>{t('app.reload')}</Button>
    </Blank>
  );
}
