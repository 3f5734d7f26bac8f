import { Button, Group, NumberInput, Select, Stack } from '@mantine/core';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { binaryQuantity, parseQuantity } from '@/api/quantity';
import type { LonghornSetting } from '@/api/storage';
import { t } from '@/i18n';
import { useSubmit } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import formClasses from '@/screens/machines/create/Create.module.css';
import { secretNamespace } from './encryption';

const names = ['backup-compression-method', 'backup-concurrent-limit', 'restore-concurrent-limit', 'backup-bandwidth-limit'] as const;
type Name = (typeof names)[number];
const mebibyte = 2 ** 20;

/** How backups are written: compression, how much at a time, how fast. */
export function TuningCard() {
  const can = useCan(secretNamespace);
  const maySee = can('list', kinds.longhornSettings);
  const { items } = useCollection(maySee ? kinds.longhornSettings : null, { namespace: secretNamespace });
  const settings = items.filter((setting) => names.some((name) => name === setting.metadata.name));
  if (settings.length === 0) return null;
  return <Tuning key={settings.map((setting) => setting.metadata.resourceVersion).join()} settings={settings} mayEdit={can('update', kinds.longhornSettings)} />;
}

function Tuning({ settings, mayEdit }: { settings: readonly LonghornSetting[]; mayEdit: boolean }) {
  const stored = Object.fromEntries(settings.map((setting) => [setting.metadata.name, setting.value ?? ''])) as Partial<Record<Name, string>>;
  const [form, setForm] = useState(stored);
  const changed = settings.filter((setting) => form[setting.metadata.name as Name] !== (setting.value ?? ''));
  const { busy, error, submit } = useSubmit(async () => {
    for (const setting of changed) await mergePatch(kinds.longhornSettings, setting, { value: form[setting.metadata.name as Name] });
    say(t('common.saved'));
  });
  const count = (name: Name) => ({ min: 1, max: 64, allowDecimal: false, disabled: !mayEdit, value: Number(form[name] ?? 0), onChange: (value: number | string) => setForm({ ...form, [name]: String(Number(value) || 1) }) });
  return (
    <Card title={t('backups.tuning')}>
      <Stack>
        <div className={formClasses.columns}>
          <Select label={t('backups.compression')} description={t('backups.compressionHelp')} allowDeselect={false} disabled={!mayEdit} data={['lz4', 'gzip', 'none']} value={form['backup-compression-method'] ?? null} onChange={(value) => setForm({ ...form, 'backup-compression-method': value ?? 'lz4' })} />
          <NumberInput label={t('backups.bandwidth')} description={t('backups.bandwidthHelp')} min={0} disabled={!mayEdit} value={Math.round((parseQuantity(form['backup-bandwidth-limit']) ?? 0) / mebibyte)} onChange={(value) => setForm({ ...form, 'backup-bandwidth-limit': binaryQuantity((Number(value) || 0) * mebibyte) })} />
          <NumberInput label={t('backups.backupAtOnce')} description={t('backups.atOnceHelp')} {...count('backup-concurrent-limit')} />
          <NumberInput label={t('backups.restoreAtOnce')} description={t('backups.atOnceHelp')} {...count('restore-concurrent-limit')} />
        </div>
        {error && <Problem error={error} />}
        {mayEdit && (
          <Group justify="flex-end">
            <Button variant="default" disabled={changed.length === 0} onClick={() => setForm(stored)}>{t('common.cancel')}</Button>
            <Button disabled={changed.length === 0} loading={busy} onClick={() => void submit()}>{t('common.save')}</Button>
          </Group>
        )}
      </Stack>
    </Card>
  );
}
