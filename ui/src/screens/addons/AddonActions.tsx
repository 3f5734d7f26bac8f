import { Menu, Stack, Text } from '@mantine/core';
import { IconEdit, IconPlayerPlay, IconPlayerStop } from '@tabler/icons-react';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import type { Addon } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { LazyEditor } from '@/parts/yaml/lazyEditor';
import { helpOf, titleOf } from './addon';

/** Switching an add-on on and off, and its values. */
export function AddonItems({ addon }: { addon: Addon }) {
  const can = useCan(addon.metadata.namespace ?? '');
  if (!can('update', kinds.addons, addon.metadata.name)) return null;
  return (
    <>
      {addon.spec.enabled ? (
        <Menu.Item leftSection={<IconPlayerStop size={16} />} onClick={() => switchAddon(addon, false)}>{t('addons.disable')}</Menu.Item>
      ) : (
        <Menu.Item leftSection={<IconPlayerPlay size={16} />} onClick={() => switchAddon(addon, true)}>{t('addons.enable')}</Menu.Item>
      )}
      <Menu.Item leftSection={<IconEdit size={16} />} onClick={() => openDialog((close) => <ValuesDialog addon={addon} onClose={close} />)}>{t('addons.values')}</Menu.Item>
    </>
  );
}

export function switchAddon(addon: Addon, enabled: boolean): void {
  const name = titleOf(addon);
  ask({
    title: t(enabled ? 'addons.enableTitle' : 'addons.disableTitle', { name }),
    body: <Stack gap="xs"><Text>{helpOf(addon)}</Text><Text>{t(enabled ? 'addons.enableHelp' : 'addons.disableHelp')}</Text></Stack>,
    confirm: t(enabled ? 'addons.enable' : 'addons.disable'),
    dangerous: !enabled,
    run: async () => {
      await mergePatch(kinds.addons, addon, { spec: { enabled } });
      say(t('common.actionDone', { action: t(enabled ? 'addons.enable' : 'addons.disable'), name }));
    },
  });
}

function ValuesDialog({ addon, onClose }: { addon: Addon; onClose: () => void }) {
  const [values, setValues] = useState(addon.spec.valuesContent);
  const patch = { spec: { valuesContent: values } };
  const { name, namespace } = addon.metadata;
  return (
    <FormDialog
      title={t('addons.valuesTitle', { name: titleOf(addon) })}
      onClose={onClose}
      size="lg"
      submitLabel={t('common.save')}
      placed={['spec.valuesContent']}
      objects={[{ apiVersion: 'harvesterhci.io/v1beta1', kind: 'Addon', metadata: { name, namespace }, ...patch }]}
      command={`kubectl -n ${namespace} edit addons.harvesterhci.io ${name}`}
      run={async () => {
        await mergePatch(kinds.addons, addon, patch);
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack gap={6}>
          <Text size="sm" c="dimmed">{t('addons.valuesHelp')}</Text>
          <div style={{ height: 320, border: '1px solid var(--croft-line)', borderRadius: 9, overflow: 'hidden' }}><LazyEditor label={t('addons.values')} value={values} onChange={setValues} /></div>
          {refusalOf(error, 'spec.valuesContent') && <Text size="sm" c="var(--mantine-color-error)" role="alert">{refusalOf(error, 'spec.valuesContent')}</Text>}
        </Stack>
      )}
    </FormDialog>
  );
}
