import { notifications } from '@mantine/notifications';
import { IconAlertTriangle, IconCheck } from '@tabler/icons-react';
import { asApiError } from '@/api/errors';

/** Short news in the corner of the page. */
export function say(message: string): void {
  notifications.show({ message, icon: <IconCheck size={16} />, color: 'croft', autoClose: 5_000 });
}

/** A refusal stays until it was read. */
export function sayError(title: string, error: unknown): void {
  notifications.show({ title, message: asApiError(error).message, icon: <IconAlertTriangle size={16} />, color: 'red', autoClose: 20_000 });
}
