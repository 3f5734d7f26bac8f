import type { Addon } from '@/api/cluster';
import type { Key } from '@/i18n';
import { t } from '@/i18n';
import { en } from '@/i18n/en';
import type { Tone } from '@/parts/StatusBadge';

export function titleOf(addon: Addon): string {
  return addon.metadata.labels?.['addon.harvesterhci.io/displayName'] ?? addon.metadata.name;
}

export function isExperimental(addon: Addon): boolean {
  return addon.metadata.labels?.['addon.harvesterhci.io/experimental'] === 'true';
}

export function helpOf(addon: Addon): string {
  return addon.metadata.name in en.addonHelp ? t(`addonHelp.${addon.metadata.name}` as Key) : '';
}

interface AddonState {
  tone: Tone;
  label: string;
  hint?: string | undefined;
}

/** What became of switching it on or off. */
export function stateOf(addon: Addon): AddonState {
  const condition = (type: string) => addon.status?.conditions?.find((each) => each.type === type && each.status === 'True');
  const failed = condition('OperationFailed');
  if (failed && addon.spec.enabled) return { tone: 'bad', label: t('addons.failed'), hint: failed.message || failed.reason };
  switch (addon.status?.status) {
    case 'AddonDeploySuccessful':
      return { tone: 'ok', label: t('addons.on'), hint: condition('Completed')?.message };
    case 'AddonEnabling':
      return { tone: 'busy', label: t('addons.enabling') };
    case 'AddonUpdating':
      return { tone: 'busy', label: t('addons.updating') };
    case 'AddonDisabling':
      return { tone: 'busy', label: t('addons.disabling') };
    default:
      return addon.spec.enabled ? { tone: 'busy', label: t('addons.enabling') } : { tone: 'idle', label: t('addons.off') };
  }
}
