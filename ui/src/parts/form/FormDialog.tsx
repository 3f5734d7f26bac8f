import { Button, Group, Modal, Stack } from '@mantine/core';
import { useCallback, type ReactNode } from 'react';
import type { ApiError } from '@/api/errors';
import { t } from '@/i18n';
import { Problem } from '../Problem';
import { Preview } from './Preview';
import { allPlaced, useSubmit } from './useSubmit';

interface FormDialogProps {
  title: string;
  onClose: () => void;
  run: () => Promise<void>;
  submitLabel: string;
  /** Something is still missing. */
  incomplete?: boolean;
  dangerous?: boolean;
  size?: string;
  objects?: readonly unknown[];
  command?: string;
  /** The paths whose refusals the fields themselves show. */
  placed?: readonly string[];
  children: ReactNode | ((error: ApiError | null) => ReactNode);
}

/** A dialog with fields: sends once, closes when it worked, and otherwise says why not. */
export function FormDialog({ title, onClose, run, submitLabel, incomplete, dangerous, size = 'md', objects, command, placed, children }: FormDialogProps) {
  const { busy, error, submit } = useSubmit(
    useCallback(async () => {
      await run();
      onClose();
    }, [run, onClose]),
  );
  return (
    <Modal opened onClose={onClose} title={title} size={size} closeButtonProps={{ 'aria-label': t('common.close') }}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!incomplete && !busy) void submit();
        }}
      >
        <Stack>
          {typeof children === 'function' ? children(error) : children}
          {error && !allPlaced(error, ...(placed ?? [])) && <Problem error={error} />}
          <Preview {...(objects && { objects })} {...(command && { command })} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>{t('common.cancel')}</Button>
            <Button type="submit" color={dangerous ? 'red' : undefined} disabled={incomplete} loading={busy}>{submitLabel}</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
