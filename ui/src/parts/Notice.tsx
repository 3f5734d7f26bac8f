import { Alert } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import type { ReactNode } from 'react';

/** Something to know before going on. The usual yellow of alerts is too pale to read. */
export function Notice({ title, children, mb }: { title?: string; children: ReactNode; mb?: string }) {
  return (
    <Alert color="yellow" variant="light" mb={mb} icon={<IconAlertTriangle size={18} />} title={title} styles={{ title: { color: 'var(--croft-warn)' }, icon: { color: 'var(--croft-warn)' } }}>
      {children}
    </Alert>
  );
}
