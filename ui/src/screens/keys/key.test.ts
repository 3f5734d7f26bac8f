import { expect, it } from 'vitest';
import { isPrivateKey, parsePublicKey } from './key';

it('reads algorithm and comment of a public key', () => {
  expect(parsePublicKey(' ssh-ed25519 AAAAC3Nza+/= anna@laptop of work\n')).toEqual({ algorithm: 'ssh-ed25519', comment: 'anna@laptop of work' });
  expect(parsePublicKey('ecdsa-sha2-nistp256 AAAA')).toEqual({ algorithm: 'ecdsa-sha2-nistp256', comment: '' });
});

it('takes nothing else for one', () => {
  expect(parsePublicKey('')).toBeNull();
  expect(parsePublicKey('ssh-ed25519')).toBeNull();
  expect(parsePublicKey('AAAAC3Nza anna@laptop')).toBeNull();
});

it('knows a private key, so that it is not sent', () => {
  expect(isPrivateKey('-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl')).toBe(true);
  expect(isPrivateKey('-----BEGIN RSA PRIVATE KEY-----')).toBe(true);
  expect(isPrivateKey('ssh-rsa AAAA')).toBe(false);
});
