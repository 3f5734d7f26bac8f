import { Alert, Button, Group, NumberInput, PasswordInput, Radio, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core';
import { IconPlugConnected } from '@tabler/icons-react';
import { useState } from 'react';
import { request, mergePatch } from '@/api/client';
import type { Setting } from '@/api/harvester';
import { kinds, objectPath } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { Preview } from '@/parts/form/Preview';
import { useSubmit } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import formClasses from '@/screens/machines/create/Create.module.css';
import type { TargetField, TargetForm as Form, TargetType } from './target';
import { parseTarget, refusedField, shownValue, targetValue } from './target';

/** Sets the target. It can be tried before it is set: the server does so in any case, and refuses one that does not work. */
export function TargetForm({ setting }: { setting: Setting }) {
  const mayEdit = useMay('update', kinds.settings);
  const stored = parseTarget(setting.value);
  const [form, setForm] = useState<Form>(stored.type === '' ? { ...stored, type: 's3' } : stored);
  const [tested, setTested] = useState(false);
  const change = (changes: Partial<Form>) => {
    setTested(false);
    setForm((before) => ({ ...before, ...changes }));
  };
  const value = targetValue(form);
  const save = useSubmit(async () => {
    await mergePatch(kinds.settings, setting, { value });
    say(t('common.saved'));
  });
  // A dry run has the server connect, write, read and delete, but leaves the setting as it is.
  const test = useSubmit(async () => {
    setTested(false);
    await request('PATCH', `${objectPath(kinds.settings, undefined, setting.metadata.name)}?dryRun=All`, { value }, { contentType: 'application/merge-patch+json' });
    setTested(true);
  });
  const error = save.error ?? test.error;
  const refused = refusedField(error, form.type);
  const at = (field: TargetField) => (refused?.field === field ? refused.message : undefined);
  const clear = () => { save.clearError(); test.clearError(); };
  const busy = save.busy || test.busy;
  const incomplete = form.type === 's3' ? !form.bucketName || !form.bucketRegion : !form.endpoint;

  const remove = () =>
    ask({
      title: t('backups.removeTarget'),
      body: t('backups.removeTargetHelp'),
      confirm: t('common.remove'),
      dangerous: true,
      run: () => mergePatch(kinds.settings, setting, { value: '' }),
    });
  const command = `kubectl patch settings.harvesterhci.io backup-target --type merge -p '${JSON.stringify({ value: shownValue(form) })}'`;
  return (
    <Card title={t(stored.type === '' ? 'backups.setTarget' : 'backups.changeTarget')}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          clear();
          if (!busy && !incomplete) void save.submit();
        }}
      >
        <Stack>
          <Radio.Group label={t('common.type')} value={form.type} onChange={(type) => { clear(); change({ type: type as TargetType, endpoint: form.type === type ? form.endpoint : '' }); }} error={at('type')}>
            <Group mt={6}>
              <Radio value="s3" label={t('backups.s3')} disabled={!mayEdit} />
              <Radio value="nfs" label={t('backups.nfs')} disabled={!mayEdit} />
              <Radio value="directory" label={t('backups.directory')} disabled={!mayEdit} />
            </Group>
          </Radio.Group>
          <Text size="sm" c="dimmed">{t(form.type === 'nfs' ? 'backups.nfsHelp' : form.type === 'directory' ? 'backups.directoryHelp' : 'backups.s3Help')}</Text>
          <TextInput label={t('backups.endpoint')} description={form.type === 's3' ? t('backups.endpointHelp') : undefined} required={form.type !== 's3'} placeholder={placeholders[form.type]} value={form.endpoint} onChange={(event) => change({ endpoint: event.currentTarget.value })} error={at('endpoint')} disabled={!mayEdit} spellCheck={false} autoComplete="off" />
          {form.type === 's3' && <BucketFields form={form} change={change} at={at} kept={stored.type === 's3'} disabled={!mayEdit} />}
          <NumberInput label={t('backups.interval')} description={t('backups.intervalHelp')} min={0} max={86_400} allowDecimal={false} value={form.refreshIntervalInSeconds} onChange={(seconds) => change({ refreshIntervalInSeconds: Number(seconds) || 0 })} error={at('refreshIntervalInSeconds')} disabled={!mayEdit} />
          {error && !refused && <Problem error={error} />}
          <div role="status">{tested && <Alert color="croft" title={t('backups.testGood')}>{t('backups.testGoodUnsaved')}</Alert>}</div>
          {mayEdit && (
            <>
              <Preview objects={[{ apiVersion: 'harvesterhci.io/v1beta1', kind: 'Setting', metadata: { name: 'backup-target' }, value: shownValue(form) }]} command={command} />
              <Group justify="flex-end">
                {stored.type !== '' && <Button variant="subtle" color="red" onClick={remove} mr="auto">{t('backups.removeTarget')}</Button>}
                <Button variant="default" leftSection={<IconPlugConnected size={16} />} disabled={incomplete || busy} loading={test.busy} onClick={() => { clear(); void test.submit(); }}>{t('backups.test')}</Button>
                <Button type="submit" disabled={incomplete || busy} loading={save.busy}>{t('common.save')}</Button>
              </Group>
            </>
          )}
        </Stack>
      </form>
    </Card>
  );
}

const placeholders: Record<TargetType, string> = { '': '', s3: 'https://s3.example.org', nfs: 'nfs://server:/export/backups', directory: 'file:///srv/backups' };

interface BucketFieldsProps {
  form: Form;
  change: (changes: Partial<Form>) => void;
  at: (field: TargetField) => string | undefined;
  /** There are keys that need not be typed again. */
  kept: boolean;
  disabled: boolean;
}

function BucketFields({ form, change, at, kept, disabled }: BucketFieldsProps) {
  const hint = kept ? t('backups.keysKept') : undefined;
  return (
    <>
      <div className={formClasses.columns}>
        <TextInput label={t('backups.bucket')} required value={form.bucketName} onChange={(event) => change({ bucketName: event.currentTarget.value })} error={at('bucketName')} disabled={disabled} spellCheck={false} autoComplete="off" />
        <TextInput label={t('backups.region')} required value={form.bucketRegion} onChange={(event) => change({ bucketRegion: event.currentTarget.value })} disabled={disabled} spellCheck={false} autoComplete="off" />
        <TextInput label={t('backups.accessKey')} description={hint} value={form.accessKeyId} onChange={(event) => change({ accessKeyId: event.currentTarget.value })} error={at('accessKeyId')} disabled={disabled} spellCheck={false} autoComplete="off" />
        <PasswordInput label={t('backups.secretKey')} description={hint} value={form.secretAccessKey} onChange={(event) => change({ secretAccessKey: event.currentTarget.value })} disabled={disabled} autoComplete="new-password" visibilityToggleButtonProps={{ 'aria-label': t('app.showPassword') }} />
      </div>
      <Switch label={t('backups.hosted')} description={t('backups.hostedHelp')} checked={form.virtualHostedStyle} onChange={(event) => change({ virtualHostedStyle: event.currentTarget.checked })} disabled={disabled} />
      <Textarea label={t('backups.cert')} description={t('backups.certHelp')} autosize minRows={2} maxRows={8} spellCheck={false} value={form.cert} onChange={(event) => change({ cert: event.currentTarget.value })} disabled={disabled} />
    </>
  );
}
