import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import type { Grant } from './grants';
import { grantsOf } from './grants';
import { tokenOf, tokenSelector, userOf, userSelector, usersNamespace } from './user';

export function useUsers() {
  const snapshot = useCollection(kinds.secrets, userSelector);
  const users = useMemo(() => snapshot.items.map(userOf), [snapshot.items]);
  return { snapshot, users };
}

/** The tokens of everybody; nothing is asked for by those who may not see them. */
export function useAllTokens() {
  const maySee = useCan(usersNamespace)('list', kinds.secrets);
  const snapshot = useCollection(maySee ? kinds.secrets : null, tokenSelector);
  const tokens = useMemo(() => snapshot.items.map(tokenOf), [snapshot.items]);
  return { snapshot, tokens, maySee };
}

/** Who has which role: everywhere, and in namespaces. */
export function useGrants() {
  const everywhere = useCollection(kinds.clusterRoleBindings);
  const inNamespaces = useCollection(kinds.roleBindings);
  const grants = useMemo((): Grant[] => [...grantsOf(everywhere.items), ...grantsOf(inNamespaces.items)], [everywhere.items, inNamespaces.items]);
  // Somebody who sees only some namespaces still sees those.
  const snapshot = everywhere.phase === 'failed' ? inNamespaces : everywhere;
  return { snapshot: { ...snapshot, items: grants }, grants };
}
