import { Alert, Button, Code, Text } from '@mantine/core';
import type { Addon } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { StatusBadge } from '@/parts/StatusBadge';
import { helpOf, isExperimental, stateOf, titleOf } from './addon';
import { AddonItems, switchAddon } from './AddonActions';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.addons}
      area="/addons"
      parent={t('addons.title')}
      titleOf={titleOf}
      meta={meta}
      facts={(addon) => [
        [t('addons.what'), helpOf(addon)],
        [t('addons.version'), addon.spec.version],
        [t('addons.chart'), addon.spec.chart],
        [t('addons.repository'), addon.spec.repo],
        [t('addons.experimental'), isExperimental(addon) && t('common.yes')],
      ]}
      body={body}
      actions={actions}
      menu={menu}
    />
  );
}

const meta = (addon: Addon) => <StatusBadge {...stateOf(addon)} />;
const body = (addon: Addon) => <Body addon={addon} />;
const actions = (addon: Addon) => <SwitchButton addon={addon} />;
const menu = (addon: Addon) => <AddonItems addon={addon} />;

function SwitchButton({ addon }: { addon: Addon }) {
  const can = useCan(addon.metadata.namespace ?? '');
  if (!can('update', kinds.addons, addon.metadata.name)) return null;
  const { enabled } = addon.spec;
  return <Button variant={enabled ? 'default' : 'filled'} onClick={() => switchAddon(addon, !enabled)}>{t(enabled ? 'addons.disable' : 'addons.enable')}</Button>;
}

function Body({ addon }: { addon: Addon }) {
  const state = stateOf(addon);
  return (
    <>
      {state.hint && <Alert color={state.tone === 'bad' ? 'red' : 'croft'} title={state.label}>{state.hint}</Alert>}
      <Card title={t('addons.values')}>
        {addon.spec.valuesContent ? <Code block>{addon.spec.valuesContent}</Code> : <Text size="sm" c="dimmed">{t('addons.noValues')}</Text>}
      </Card>
    </>
  );
}
