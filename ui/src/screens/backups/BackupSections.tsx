import { Tabs } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { t } from '@/i18n';

const sections = [
  { to: '/backups', label: 'backups.title' },
  { to: '/restores', label: 'backups.restores' },
  { to: '/backup-volumes', label: 'backups.stored' },
  { to: '/backup-target', label: 'backups.target' },
] as const;
type Section = (typeof sections)[number]['to'];

/** The lists and settings about backups, side by side. */
export function BackupSections({ current }: { current: Section }) {
  const navigate = useNavigate();
  const maySeeStored = useMay('list', kinds.backupVolumes);
  const maySeeTarget = useMay('get', kinds.settings);
  const shown = sections.filter(({ to }) => to === current || (to === '/backup-volumes' ? maySeeStored : to === '/backup-target' ? maySeeTarget : true));
  return (
    <Tabs value={current} onChange={(to) => void navigate({ to: to ?? current })} mb="md">
      <Tabs.List style={{ flexWrap: 'nowrap', overflowX: 'auto', overflowY: 'hidden' }}>
        {shown.map(({ to, label }) => <Tabs.Tab key={to} value={to} style={{ flex: 'none' }}>{t(label)}</Tabs.Tab>)}
      </Tabs.List>
    </Tabs>
  );
}
