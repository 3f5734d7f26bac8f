import type { ResourceQuota } from '@/api/cluster';
import { formatBytes, parseQuantity } from '@/api/quantity';
import { language } from '@/i18n';

/** What a quota can bound here: docs/harvester-api.md, "Quotas". */
export const boundable = ['limits.cpu', 'limits.memory', 'requests.cpu', 'requests.memory', 'pods'] as const;
export type Bound = (typeof boundable)[number];

export function isMemory(name: string): boolean {
  return name.endsWith('memory') || name.endsWith('storage');
}

export interface QuotaLine {
  name: string;
  used: number | undefined;
  hard: number | undefined;
  text: string;
}

/** Each bound of a quota with what is used of it. */
export function linesOf(quota: ResourceQuota): QuotaLine[] {
  const hard = quota.status?.hard ?? quota.spec?.hard ?? {};
  return Object.keys(hard).map((name) => {
    const used = parseQuantity(quota.status?.used?.[name]);
    const most = parseQuantity(hard[name]);
    return { name, used, hard: most, text: `${shown(name, used)} / ${shown(name, most)}` };
  });
}

function shown(name: string, value: number | undefined): string {
  if (value === undefined) return '–';
  return isMemory(name) ? formatBytes(value, language()) : new Intl.NumberFormat(language(), { maximumFractionDigits: 2 }).format(value);
}
