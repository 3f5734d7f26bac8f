import { Tabs } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { t } from '@/i18n';

const sections = [
  { to: '/snapshots', label: 'snapshots.ofMachines' },
  { to: '/volume-snapshots', label: 'snapshots.ofVolumes' },
] as const;

export function SnapshotSections({ current }: { current: (typeof sections)[number]['to'] }) {
  const navigate = useNavigate();
  return (
    <Tabs value={current} onChange={(to) => void navigate({ to: to ?? current })} mb="md">
      <Tabs.List>{sections.map(({ to, label }) => <Tabs.Tab key={to} value={to}>{t(label)}</Tabs.Tab>)}</Tabs.List>
    </Tabs>
  );
}
