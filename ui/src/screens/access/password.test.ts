import { describe, expect, it } from 'vitest';
import { decode, encode, hashPassword } from './password';

describe('passwords', () => {
  it('are hashed as the server reads them', async () => {
    const hash = await hashPassword('correct horse battery', new Uint8Array(16).fill(7));
    expect(hash).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$BwcHBwcHBwcHBwcHBwcHBw\$[A-Za-z0-9+/]{43}$/);
    expect(hash).not.toContain('=43');
    expect(await hashPassword('correct horse battery')).not.toBe(hash);
  });

  it('come with names in any script', () => {
    expect(decode(encode('Jürgen Łuczak'))).toBe('Jürgen Łuczak');
    expect(decode('%%%')).toBe('');
    expect(decode(undefined)).toBe('');
  });
});
