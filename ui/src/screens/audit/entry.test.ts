import { expect, it } from 'vitest';
import type { AuditEvent } from '@/api/audit';
import { addressOf, subjectOf, toneOf, whoOf } from './entry';
import { filtersOf, queryOf } from './filters';
import { joined } from './useAuditLog';

const event = (changes: Partial<AuditEvent>): AuditEvent => ({
  auditID: 'a',
  stage: 'ResponseComplete',
  requestURI: '/x?y=1',
  verb: 'update',
  user: { username: 'ann' },
  stageTimestamp: '2026-01-31T12:00:00.000000Z',
  ...changes,
});

it('names who it was, and who only claimed to be', () => {
  expect(whoOf(event({}))).toEqual({ name: 'ann', unproven: false, as: null });
  expect(whoOf(event({ impersonatedUser: { username: 'bob' } })).as).toBe('bob');
  expect(whoOf(event({ user: {}, annotations: { 'croft.io/tried-user': 'eve' } }))).toEqual({ name: 'eve', unproven: true, as: null });
});

it('leads to the screen of an object, or to the explorer', () => {
  const start = event({ objectRef: { resource: 'virtualmachines', apiGroup: 'subresources.kubevirt.io', subresource: 'start', namespace: 'a', name: 'web' } });
  expect([addressOf(start), subjectOf(start)]).toEqual(['/machines/a/web', 'VirtualMachine/start']);
  expect(addressOf(event({ objectRef: { resource: 'nodes', name: 'n1' } }))).toBe('/hosts/n1');
  // A request about a namespace has its name in both places.
  expect(addressOf(event({ objectRef: { resource: 'namespaces', namespace: 'a', name: 'a' } }))).toBe('/namespaces/a');
  expect(addressOf(event({ objectRef: { resource: 'configmaps', namespace: 'a', name: 'b/c' } }))).toBe('/explorer/core/configmaps/a/b%2Fc');
  expect(addressOf(event({ objectRef: { resource: 'storageclasses', apiGroup: 'storage.k8s.io', name: 'fast' } }))).toBe('/explorer/storage.k8s.io/storageclasses/_/fast');
});

it('leads nowhere if there is nothing', () => {
  const object = { resource: 'configmaps', namespace: 'a', name: 'b' };
  expect(addressOf(event({ verb: 'delete', objectRef: object, responseStatus: { code: 200 } }))).toBeNull();
  expect(addressOf(event({ verb: 'delete', objectRef: object, responseStatus: { code: 403 } }))).not.toBeNull();
  expect(addressOf(event({ objectRef: { resource: 'tokens', apiGroup: 'management.cattle.io', name: 't' } }))).toBeNull();
  expect([addressOf(event({})), subjectOf(event({}))]).toEqual([null, '/x']);
});

it('colours what failed', () => {
  expect([101, 201, 403, 500, undefined].map(toneOf)).toEqual(['ok', 'ok', 'warn', 'bad', 'idle']);
});

it('asks the server for what was chosen', () => {
  const now = Date.parse('2026-01-31T12:00:00Z');
  expect(queryOf(filtersOf({}), now)).toBe('');
  expect(queryOf(filtersOf({ verb: 'nonsense', range: 'toString' }), now)).toBe('');
  const query = new URLSearchParams(queryOf(filtersOf({ text: ' a&b ', user: 'ann', verb: 'change', failed: 'yes', range: 'hour' }), now));
  expect(Object.fromEntries(query)).toEqual({ text: 'a&b', user: 'ann', verb: 'update,patch', code: '4xx,5xx', since: '2026-01-31T11:00:00.000Z' });
});

it('puts newer ones before older ones, each once', () => {
  const of = (auditID: string) => event({ auditID });
  expect(joined([of('c'), of('b')], [{ items: [of('b')] }, { items: [of('a')] }]).map((each) => each.auditID)).toEqual(['c', 'b', 'a']);
});
