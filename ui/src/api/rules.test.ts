import { expect, it } from 'vitest';
import { allowed } from './rules';

const start = { verb: 'update', group: 'subresources.kubevirt.io', resource: 'virtualmachines/start' };

it.each([
  ['everything', [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }], true],
  ['nothing', [], false],
  ['the very subresource', [{ verbs: ['update'], apiGroups: ['subresources.kubevirt.io'], resources: ['virtualmachines/start'] }], true],
  ['that subresource of anything', [{ verbs: ['update'], apiGroups: ['*'], resources: ['*/start'] }], true],
  ['only the machine itself', [{ verbs: ['update'], apiGroups: ['subresources.kubevirt.io'], resources: ['virtualmachines'] }], false],
  ['another verb', [{ verbs: ['get'], apiGroups: ['*'], resources: ['*'] }], false],
  ['another group', [{ verbs: ['*'], apiGroups: ['apps'], resources: ['*'] }], false],
  ['one machine by name', [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], resourceNames: ['web'] }], false],
])('%s', (_, rules, expected) => {
  expect(allowed(rules, start)).toBe(expected);
});

it('counts names where the question has one', () => {
  const rules = [{ verbs: ['get'], apiGroups: [''], resources: ['secrets'], resourceNames: ['mine'] }];
  expect(allowed(rules, { verb: 'get', group: '', resource: 'secrets', name: 'mine' })).toBe(true);
  expect(allowed(rules, { verb: 'get', group: '', resource: 'secrets', name: 'yours' })).toBe(false);
});
