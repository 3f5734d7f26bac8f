import type { SupportBundle } from '@/api/cluster';
import { t } from '@/i18n';
import type { Tone } from '@/parts/StatusBadge';

export function isReady(bundle: SupportBundle): boolean {
  return bundle.status?.state === 'ready';
}

export function progressOf(bundle: SupportBundle): number {
  return bundle.status?.progress ?? 0;
}

export function stateOf(bundle: SupportBundle): { tone: Tone; label: string; hint?: string | undefined } {
  switch (bundle.status?.state) {
    case 'ready':
      return { tone: 'ok', label: t('support.ready') };
    case 'error':
      return { tone: 'bad', label: t('support.failed'), hint: bundle.status.conditions?.find((each) => each.message)?.message };
    default:
      return { tone: 'busy', label: t('support.generating', { percent: progressOf(bundle) }) };
  }
}

/** The server deletes a bundle that was fetched, unless it is told to keep it: here one may fetch it again. */
export function downloadAddress(bundle: SupportBundle): string {
  return `/v1/harvester/supportbundles/${encodeURIComponent(bundle.metadata.name)}/download?retain=true`;
}
