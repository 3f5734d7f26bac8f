import { describe, expect, it } from 'vitest';
import { levelOf, objectsText, rulesFor } from './words';

describe('the words of roles', () => {
  it('sum up verbs', () => {
    expect(levelOf(['*'])).toBe('all');
    expect(levelOf(['get', 'list', 'watch', 'create', 'update', 'patch', 'delete'])).toBe('change');
    expect(levelOf(['get', 'list'])).toBe('see');
    expect(levelOf(['get', 'update'])).toBe('some');
  });

  it('name what is meant', () => {
    expect(objectsText({ verbs: ['get'], apiGroups: ['*'], resources: ['*'] })).toBe('everything');
    expect(objectsText({ verbs: ['get'], nonResourceURLs: ['/metrics'] })).toBe('/metrics');
    expect(objectsText({ verbs: ['get'], apiGroups: [''], resources: ['pods', 'secrets'] })).toBe('pods, secrets');
  });

  it('become rules: seeing machines does not open their consoles', () => {
    const seeing = rulesFor({ machines: 'see', images: 'none' });
    expect(seeing[0]).toEqual({ apiGroups: ['kubevirt.io'], resources: ['virtualmachines', 'virtualmachineinstances'], verbs: ['get', 'list', 'watch'] });
    expect(JSON.stringify(seeing)).not.toContain('vnc');
    const changing = rulesFor({ machines: 'change' });
    expect(JSON.stringify(changing)).toContain('virtualmachineinstances/vnc');
    expect(changing[0]?.verbs).toContain('delete');
    expect(rulesFor({})).toEqual([]);
  });
});
