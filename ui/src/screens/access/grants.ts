import { deleteObject, mergePatch } from '@/api/client';
import type { Kind } from '@/api/kinds';
import { kinds } from '@/api/kinds';
import type { RoleBinding, Subject } from '@/api/rbac';

/** One subject of a binding: who has which role, and where. */
export interface Grant {
  key: string;
  binding: RoleBinding;
  subject: Subject;
  roleKind: string;
  role: string;
  /** Empty for everywhere. */
  namespace: string;
}

export function grantsOf(bindings: readonly RoleBinding[]): Grant[] {
  return bindings.flatMap((binding) =>
    (binding.subjects ?? []).map((subject) => ({
      key: `${binding.metadata.namespace ?? ''}/${binding.metadata.name}/${subject.kind}/${subject.namespace ?? ''}/${subject.name}`,
      binding,
      subject,
      roleKind: binding.roleRef.kind,
      role: binding.roleRef.name,
      namespace: binding.metadata.namespace ?? '',
    })),
  );
}

/** What came with the server and keeps it going: nothing that somebody gave to somebody. */
export function isBuiltIn(binding: RoleBinding): boolean {
  return binding.metadata.labels?.['kubernetes.io/bootstrapping'] === 'rbac-defaults';
}

/** Whether a grant reaches a local user: by name, by one of its groups, or as everybody's. */
export function reaches(grant: Grant, user: string, groups: readonly string[]): boolean {
  const { kind, name } = grant.subject;
  if (kind === 'User') return name === user;
  return kind === 'Group' && (groups.includes(name) || name === 'system:authenticated');
}

export function bindingKind(binding: RoleBinding): Kind<RoleBinding> {
  return binding.metadata.namespace ? kinds.roleBindings : kinds.clusterRoleBindings;
}

/** Takes a role away from one subject; others of the same binding keep it. */
export async function revoke({ binding, subject }: Grant): Promise<void> {
  const kind = bindingKind(binding);
  const others = (binding.subjects ?? []).filter((each) => each !== subject);
  if (others.length === 0) await deleteObject(kind, binding);
  else await mergePatch(kind, binding, { metadata: { resourceVersion: binding.metadata.resourceVersion }, subjects: others });
}

export function bindingFor(name: string, subject: Subject, role: { kind: string; name: string }, namespace: string): RoleBinding {
  return {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: namespace ? 'RoleBinding' : 'ClusterRoleBinding',
    metadata: { name, ...(namespace && { namespace }) },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', ...role },
    subjects: [subject],
  };
}
