import { useMemo } from 'react';
import { useDiscovery } from '@/api/discovery';
import type { DiscoveredKind } from '@/api/discovery';
import { useAddress } from '@/app/address';

/** The address of a kind's list: `/explorer/apps/deployments`; the core group is called `core`. */
export function kindAddress(kind: { group: string; plural: string }): string {
  return `/explorer/${kind.group || 'core'}/${kind.plural}`;
}

/** The kind that the address names, once the server has said what there is. */
export function useKind(): { kind: DiscoveredKind | undefined; loading: boolean; error: unknown } {
  const { group = '', plural = '' } = useAddress();
  const { data, isLoading, error } = useDiscovery();
  const kind = useMemo(() => data?.find((each) => each.plural === plural && (each.group || 'core') === group), [data, group, plural]);
  return { kind, loading: isLoading, error };
}
