import { useCallback, useMemo, useSyncExternalStore } from 'react';
import { request } from './client';
import { Collection } from './collection';
import type { Snapshot } from './collection';
import { connection } from './connection';
import type { FeedSource } from './feed';
import { selecting } from './feed';
import type { Kind } from './kinds';
import { kindId, listPath } from './kinds';
import type { KubeObject } from './types';

export interface Scope {
  namespace?: string;
  fieldSelector?: string;
  labelSelector?: string;
}

const open = new Map<string, Collection<KubeObject>>();

/** The one collection of this kind and scope that all screens share. */
export function collectionOf<T extends KubeObject>(kind: Kind<T>, scope: Scope = {}): Collection<T> {
  const key = [kindId(kind), kind.version, scope.namespace ?? '', scope.fieldSelector ?? '', scope.labelSelector ?? ''].join('|');
  let found = open.get(key);
  if (!found) {
    const { namespace, ...selectors } = scope;
    const options = kind.namespaced && !namespace ? { fallback: () => perNamespace(kind, selectors) } : {};
    found = new Collection<KubeObject>({ path: listPath(kind, namespace), ...selectors }, options);
    open.set(key, found);
  }
  return found as unknown as Collection<T>;
}

/** Ends all feeds, at sign-out. */
export function closeCollections(): void {
  for (const collection of open.values()) collection.stop();
  open.clear();
  visible = undefined;
}

const nothing: Snapshot<never> = { items: [], phase: 'loading', error: null };

/** The live objects of a kind. With `null` nothing is asked for: the hook waits for somebody to choose. */
export function useCollection<T extends KubeObject>(kind: Kind<T> | null, scope: Scope = {}): Snapshot<T> {
  const { namespace, fieldSelector, labelSelector } = scope;
  const collection = useMemo(
    () => (kind ? collectionOf(kind, { ...(namespace && { namespace }), ...(fieldSelector && { fieldSelector }), ...(labelSelector && { labelSelector }) }) : null),
    [kind, namespace, fieldSelector, labelSelector],
  );
  const subscribe = useCallback((listener: () => void) => collection?.subscribe(listener) ?? (() => undefined), [collection]);
  return useSyncExternalStore(subscribe, () => collection?.snapshot() ?? nothing);
}

export interface Single<T> {
  object: T | undefined;
  snapshot: Snapshot<T>;
}

/** One live object, by a watch of its own. */
export function useObject<T extends KubeObject>(kind: Kind<T> | null, namespace: string | undefined, name: string): Single<T> {
  const snapshot = useCollection(name ? kind : null, { ...(namespace && { namespace }), fieldSelector: selecting('metadata.name', name) });
  return { object: snapshot.items[0], snapshot };
}

export function useConnected(): boolean {
  return useSyncExternalStore(connection.subscribe, () => connection.connected);
}

let visible: Promise<string[]> | undefined;

/**
 * The namespaces that the caller may look into. Who may not list namespaces may still list what is in some of them:
 * Steve lists a kind across those, and every namespace has a service account.
 */
export function visibleNamespaces(): Promise<string[]> {
  visible ??= request<{ data?: KubeObject[] }>('GET', '/v1/harvester/serviceaccounts?exclude=metadata.managedFields')
    .then((list) => [...new Set((list.data ?? []).map((account) => account.metadata.namespace ?? ''))].filter(Boolean).sort())
    .catch((error: unknown) => {
      visible = undefined;
      throw error;
    });
  return visible;
}

async function perNamespace(kind: Kind, selectors: Omit<FeedSource, 'path'>): Promise<FeedSource[]> {
  const namespaces = await visibleNamespaces();
  return namespaces.map((namespace) => ({ path: listPath(kind, namespace), ...selectors }));
}
