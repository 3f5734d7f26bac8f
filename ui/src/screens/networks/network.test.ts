import { describe, expect, it } from 'vitest';
import { build, configOf, emptyForm, factsOf, formOf, routeOf } from './network';

const form = { ...emptyForm('default'), name: 'lan', vlan: 100 };

describe('a network for machines', () => {
  it('is on the bridge of its cluster network', () => {
    const network = build({ ...form, on: 'cluster', clusterNetwork: 'data' });
    expect(configOf(network)).toMatchObject({ type: 'bridge', bridge: 'data-br', vlan: 100 });
    expect(configOf(network)).not.toHaveProperty('macspoofchk');
    expect(factsOf(network)).toMatchObject({ clusterNetwork: 'data', vlan: 100, trunk: false });
  });

  it('is on a bridge of the host, with its own checks', () => {
    const network = build({ ...form, bridge: 'br0', mtu: 9000 });
    expect(factsOf(network)).toMatchObject({ clusterNetwork: '', bridge: 'br0', mtu: 9000, spoofCheck: true });
  });

  it('has a route only with a VLAN', () => {
    expect(routeOf(build(form))?.mode).toBe('auto');
    expect(routeOf(build({ ...form, tagged: false }))).toBeNull();
    expect(configOf(build({ ...form, tagged: false }))).not.toHaveProperty('vlan');
  });

  it('keeps what the form does not know when it is changed', () => {
    const before = build(form);
    before.spec.config = JSON.stringify({ ...configOf(before), disableContainerInterface: true });
    before.metadata.labels = { team: 'a', 'network.harvesterhci.io/type': 'L2VlanNetwork', 'network.harvesterhci.io/vlan-id': '100' };
    before.metadata.resourceVersion = '7';
    const after = build({ ...formOf(before), vlan: 200 }, before);
    expect(configOf(after)).toMatchObject({ vlan: 200, disableContainerInterface: true });
    expect(after.metadata.labels).toEqual({ team: 'a' });
    expect(after.metadata.resourceVersion).toBe('7');
    expect(configOf(build({ ...formOf(before), tagged: false }, before))).not.toHaveProperty('vlan');
  });

  it('survives nonsense', () => {
    const broken = { metadata: { name: 'x', annotations: { 'network.harvesterhci.io/route': '{' } }, spec: { config: 'no' } };
    expect(factsOf(broken).plugin).toBe('');
    expect(routeOf(broken)).toBeNull();
  });
});
