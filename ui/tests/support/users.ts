import { encode, hashPassword } from '../../src/screens/access/password.ts';
import { have } from './guests.ts';
import type { Server } from './server.ts';
import { cookiesOf, type Session } from './session.ts';

/** A user with a role, everywhere or in one namespace, who is signed in. The same name is the same user. */
export async function haveUser(server: Server, name: string, role: string, namespace?: string): Promise<Session> {
  const password = `the password of ${name}`;
  await have(server, '/api/v1/namespaces/kube-system/secrets', {
    apiVersion: 'v1',
    kind: 'Secret',
    type: 'croft.io/user',
    metadata: { name: `user-${name}` },
    data: { username: encode(name), groups: '', 'password-hash': encode(await hashPassword(password)) },
  });
  const rbac = '/apis/rbac.authorization.k8s.io/v1';
  await have(server, namespace ? `${rbac}/namespaces/${namespace}/rolebindings` : `${rbac}/clusterrolebindings`, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: namespace ? 'RoleBinding' : 'ClusterRoleBinding',
    metadata: { name: `${name}-${role}` },
    subjects: [{ kind: 'User', name, apiGroup: 'rbac.authorization.k8s.io' }],
    roleRef: { kind: 'ClusterRole', name: role, apiGroup: 'rbac.authorization.k8s.io' },
  });
  return cookiesOf(server.api, name, password);
}
