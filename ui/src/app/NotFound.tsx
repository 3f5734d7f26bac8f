import { Button } from '@mantine/core';
import { IconMapQuestion } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';

export function NotFound() {
  return (
    <Blank icon={IconMapQuestion} title={t('app.notFound')} text={t('app.notFoundHelp')}>
      <Button component={Link} to="/">{t('app.home')}</Button>
    </Blank>
  );
}
