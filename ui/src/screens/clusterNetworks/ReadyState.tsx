import type { Condition } from '@/api/types';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';

/** The condition `ready` as Harvester's network objects have it. */
export function ReadyState({ conditions }: { conditions: readonly Condition[] | undefined }) {
  const ready = conditions?.find((condition) => condition.type === 'ready');
  if (!ready) return <StatusBadge tone="idle" label={t('common.unknown')} />;
  if (ready.status === 'True') return <StatusBadge tone="ok" label={t('networks.ready')} />;
  return <StatusBadge tone="warn" label={t('networks.notReady')} hint={ready.message || ready.reason} />;
}
