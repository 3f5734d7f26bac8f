import { useQuery } from '@tanstack/react-query';
import { request } from './client';

/** What nodes and machines use, now and lately: docs/usage.md. */

export interface UsageHistory {
  window: string;
  intervalSeconds: number;
  times: number[];
  series: Record<string, (number | null)[]>;
  capacity: Record<string, number>;
}

export interface UsageItem {
  node: string;
  namespace?: string;
  name?: string;
  time: number;
  usage: Record<string, number>;
  capacity: Record<string, number>;
}

export type Window = '10m' | '24h';

const every: Record<Window, number> = { '10m': 5_000, '24h': 60_000 };

/** `target` is `nodes/<name>` or `virtualmachineinstances/<namespace>/<name>`; null asks for nothing. */
export function useUsageHistory(target: string | null, window: Window) {
  return useQuery({
    queryKey: ['usage', target, window],
    queryFn: () => request<UsageHistory>('GET', `/croft/v1/usage/${target}?window=${window}`),
    enabled: target !== null,
    refetchInterval: every[window],
    retry: false,
  });
}

export function useUsageNow(target: 'nodes' | 'virtualmachineinstances') {
  return useQuery({
    queryKey: ['usage', target],
    queryFn: () => request<{ items: UsageItem[] }>('GET', `/croft/v1/usage/${target}`),
    refetchInterval: 5_000,
    retry: false,
  });
}
