import { Button, Group, Modal, Stack, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { t } from '@/i18n';
import { CopyableCode } from '@/parts/form/Preview';
import { Notice } from '@/parts/Notice';

/** A secret that is shown this once. A click beside the dialog does not close it. */
export function Once({ title, secret, children, onClose }: { title: string; secret: string; children?: ReactNode; onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title={title} size="lg" closeOnClickOutside={false} closeButtonProps={{ 'aria-label': t('common.close') }}>
      <Stack>
        <Notice>{t('access.once')}</Notice>
        <CopyableCode text={secret} />
        {children && <Text size="sm" c="dimmed" component="div">{children}</Text>}
        <Group justify="flex-end"><Button onClick={onClose}>{t('access.noted')}</Button></Group>
      </Stack>
    </Modal>
  );
}
