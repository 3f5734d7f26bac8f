import { describe, expect, it } from 'vitest';
import type { RoleBinding } from '@/api/rbac';
import { bindingFor, grantsOf, reaches } from './grants';

const binding: RoleBinding = {
  metadata: { name: 'ops', namespace: 'web' },
  roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'edit' },
  subjects: [{ kind: 'User', name: 'jane' }, { kind: 'Group', name: 'ops' }],
};

describe('grants', () => {
  it('are one for each subject', () => {
    expect(grantsOf([binding]).map(({ subject, role, namespace }) => [subject.name, role, namespace])).toEqual([['jane', 'edit', 'web'], ['ops', 'edit', 'web']]);
  });

  it('reach a user by name, by group, and as everybody', () => {
    const [byName, byGroup] = grantsOf([binding]);
    const everybody = grantsOf([{ ...binding, subjects: [{ kind: 'Group', name: 'system:authenticated' }] }])[0];
    if (!byName || !byGroup || !everybody) throw new Error('grants are missing');
    expect(reaches(byName, 'jane', [])).toBe(true);
    expect(reaches(byName, 'joe', ['jane'])).toBe(false);
    expect(reaches(byGroup, 'joe', ['ops'])).toBe(true);
    expect(reaches(byGroup, 'ops', [])).toBe(false);
    expect(reaches(everybody, 'joe', [])).toBe(true);
  });

  it('are cluster-wide without a namespace', () => {
    const subject = { kind: 'User', name: 'jane' };
    expect(bindingFor('a', subject, { kind: 'ClusterRole', name: 'view' }, '').kind).toBe('ClusterRoleBinding');
    expect(bindingFor('a', subject, { kind: 'ClusterRole', name: 'view' }, 'web').metadata.namespace).toBe('web');
  });
});
