import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { useCollection, visibleNamespaces } from '@/api/collections';
import type { KubeObject } from '@/api/types';
import { kinds } from '@/api/kinds';
import { usePreference } from './preferences';

/** The namespace that lists show: one, or all (''). */
export function useNamespace(): [string, (namespace: string) => void] {
  return usePreference('namespace', '');
}

/** Everybody may look into this one, hardly anybody may make something in it. */
const shared = 'harvester-public';
const system = /^(kube-|cattle-|harvester-system|longhorn-system|fleet-)/;

export function isSystemNamespace(name: string): boolean {
  return system.test(name);
}

/** All namespaces, or those that the caller may look into if he may not list them. */
export function useNamespaceNames(): string[] {
  const { items, error } = useCollection(kinds.namespaces);
  const { data } = useQuery({ queryKey: ['namespaces'], queryFn: visibleNamespaces, enabled: error?.forbidden ?? false });
  return useMemo(() => (items.length === 0 && data ? data : items.map((item) => item.metadata.name).sort()), [items, data]);
}

/** Where a new object goes unless the form says otherwise. */
export function useDefaultNamespace(): string {
  const [chosen] = useNamespace();
  const names = useNamespaceNames();
  if (chosen) return chosen;
  return names.length === 0 || names.includes('default') ? 'default' : (names.find((name) => !isSystemNamespace(name) && name !== shared) ?? 'default');
}

export function useInNamespace<T extends KubeObject>(items: readonly T[]): readonly T[] {
  const [chosen] = useNamespace();
  return useMemo(() => (chosen ? items.filter((item) => item.metadata.namespace === chosen) : items), [items, chosen]);
}
