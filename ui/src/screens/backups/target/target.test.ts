import { expect, it } from 'vitest';
import { ApiError } from '@/api/errors';
import { emptyTarget, parseTarget, refusedField, shownValue, targetValue } from './target';

it('reads and writes a target', () => {
  const value = '{"type":"directory","endpoint":"file:///srv/backups","refreshIntervalInSeconds":60}';
  expect(parseTarget(value)).toEqual({ ...emptyTarget, type: 'directory', endpoint: 'file:///srv/backups' });
  expect(targetValue(parseTarget(value))).toBe(value);
});

it('takes nothing and nonsense for no target', () => {
  expect(parseTarget(undefined)).toEqual(emptyTarget);
  expect(parseTarget('not JSON')).toEqual(emptyTarget);
  expect(parseTarget('[]')).toEqual(emptyTarget);
  expect(targetValue(emptyTarget)).toBe('');
});

it('sends only what the type knows, and keys only if they were typed', () => {
  const form = { ...emptyTarget, type: 's3' as const, endpoint: ' https://s3.example ', bucketName: 'b', bucketRegion: 'eu' };
  expect(JSON.parse(targetValue(form))).toEqual({ type: 's3', endpoint: 'https://s3.example', bucketName: 'b', bucketRegion: 'eu', refreshIntervalInSeconds: 60 });
  expect(JSON.parse(targetValue({ ...form, type: 'nfs' }))).toEqual({ type: 'nfs', endpoint: 'https://s3.example', refreshIntervalInSeconds: 60 });
});

it('does not show keys', () => {
  const shown = shownValue({ ...emptyTarget, type: 's3', accessKeyId: 'AKIA', secretAccessKey: 'hush' });
  expect(shown).not.toContain('AKIA');
  expect(shown).not.toContain('hush');
});

it('puts a refusal at its field', () => {
  const refusal = (message: string) => new ApiError(422, 'Invalid', message);
  expect(refusedField(refusal('admission webhook "v" denied the request: S3 backup target should have access key and access key id'), 's3')).toEqual({ field: 'accessKeyId', message: 'S3 backup target should have access key and access key id' });
  expect(refusedField(refusal('S3 backup target should have bucket name and region '), 's3')?.field).toBe('bucketName');
  expect(refusedField(refusal('value: failed to connect to backup target, reason: the backup target does not exist'), 'directory')?.field).toBe('endpoint');
  expect(refusedField(refusal('value: failed to connect to backup target, reason: the target denies access'), 'nfs')?.field).toBe('endpoint');
  expect(refusedField(refusal('There is VMBackup in creating or deleting progress'), 's3')).toBeNull();
  expect(refusedField(new ApiError(403, 'Forbidden', 'endpoint'), 's3')).toBeNull();
  expect(refusedField(null, 's3')).toBeNull();
});
