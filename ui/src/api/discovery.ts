import { useQuery } from '@tanstack/react-query';
import { request } from './client';
import type { Kind } from './kinds';

/** A kind as the server lists it, with what can be done with it. */
export interface DiscoveredKind extends Kind {
  verbs: readonly string[];
  shortNames: readonly string[];
}

interface Resource {
  name: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
  shortNames?: string[];
}

interface Group {
  name: string;
  preferredVersion: { version: string };
}

/** All kinds that can be listed, each in the version that its group prefers. */
export async function discover(): Promise<DiscoveredKind[]> {
  const { groups } = await request<{ groups: Group[] }>('GET', '/apis');
  const lists = await Promise.all([
    resourcesOf('', 'v1', '/api/v1'),
    ...groups.map(({ name, preferredVersion: { version } }) => resourcesOf(name, version, `/apis/${name}/${version}`).catch(() => [])),
  ]);
  return lists.flat().sort((a, b) => a.kind.localeCompare(b.kind) || a.group.localeCompare(b.group));
}

async function resourcesOf(group: string, version: string, path: string): Promise<DiscoveredKind[]> {
  const { resources } = await request<{ resources: Resource[] }>('GET', path);
  return resources
    .filter((resource) => !resource.name.includes('/') && resource.verbs.includes('list'))
    .map(({ name, kind, namespaced, verbs, shortNames = [] }) => ({ group, version, plural: name, kind, namespaced, verbs, shortNames }));
}

export function useDiscovery() {
  return useQuery({ queryKey: ['discovery'], queryFn: discover, staleTime: 60_000 });
}
