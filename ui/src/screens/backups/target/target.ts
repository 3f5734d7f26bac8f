import type { ApiError } from '@/api/errors';
import { isRecord } from '@/api/types';

/** The setting `backup-target`, which is JSON in a string. */

export type TargetType = '' | 's3' | 'nfs' | 'directory';

export interface TargetForm {
  type: TargetType;
  endpoint: string;
  bucketName: string;
  bucketRegion: string;
  accessKeyId: string;
  secretAccessKey: string;
  cert: string;
  virtualHostedStyle: boolean;
  refreshIntervalInSeconds: number;
}

export const emptyTarget: TargetForm = {
  type: '',
  endpoint: '',
  bucketName: '',
  bucketRegion: '',
  accessKeyId: '',
  secretAccessKey: '',
  cert: '',
  virtualHostedStyle: false,
  refreshIntervalInSeconds: 60,
};

const types = new Set(['s3', 'nfs', 'directory']);

export function parseTarget(value: string | undefined): TargetForm {
  let parsed: unknown;
  try {
    parsed = JSON.parse(value || '{}');
  } catch {
    return emptyTarget;
  }
  if (!isRecord(parsed)) return emptyTarget;
  const text = (key: string) => (typeof parsed[key] === 'string' ? parsed[key] : '');
  const interval = parsed['refreshIntervalInSeconds'];
  return {
    type: types.has(text('type')) ? (text('type') as TargetType) : '',
    endpoint: text('endpoint'),
    bucketName: text('bucketName'),
    bucketRegion: text('bucketRegion'),
    accessKeyId: text('accessKeyId'),
    secretAccessKey: text('secretAccessKey'),
    cert: text('cert'),
    virtualHostedStyle: parsed['virtualHostedStyle'] === true,
    refreshIntervalInSeconds: typeof interval === 'number' ? interval : emptyTarget.refreshIntervalInSeconds,
  };
}

/** Only what the type knows: a directory with a bucket would be refused. */
export function targetValue(form: TargetForm): string {
  const { type, endpoint, refreshIntervalInSeconds } = form;
  if (type === '') return '';
  const base = { type, endpoint: endpoint.trim(), refreshIntervalInSeconds };
  if (type !== 's3') return JSON.stringify(base);
  return JSON.stringify({
    ...base,
    bucketName: form.bucketName.trim(),
    bucketRegion: form.bucketRegion.trim(),
    // Keys that were given before are kept by the server, and need not be given again.
    ...(form.accessKeyId && { accessKeyId: form.accessKeyId.trim() }),
    ...(form.secretAccessKey && { secretAccessKey: form.secretAccessKey.trim() }),
    ...(form.cert.trim() && { cert: form.cert }),
    ...(form.virtualHostedStyle && { virtualHostedStyle: true }),
  });
}

/** The same for people to read: keys are not for the screen. */
export function shownValue(form: TargetForm): string {
  return targetValue({ ...form, accessKeyId: form.accessKeyId && '…', secretAccessKey: form.secretAccessKey && '…' });
}

export type TargetField = 'type' | 'endpoint' | 'bucketName' | 'accessKeyId' | 'refreshIntervalInSeconds';

const fields: readonly [RegExp, TargetField][] = [
  [/access key/i, 'accessKeyId'],
  [/bucket name|region/i, 'bucketName'],
  [/refresh interval/i, 'refreshIntervalInSeconds'],
  [/target type/i, 'type'],
  [/denies access|denied|forbidden|signature/i, 'accessKeyId'],
  [/endpoint|connect to backup target/i, 'endpoint'],
];

/** The server names the whole value; its words say which part of it they mean. */
export function refusedField(error: ApiError | null, type: TargetType): { field: TargetField; message: string } | null {
  if (!error || error.code !== 422) return null;
  const message = plain(error.causes[0]?.message ?? error.message);
  const found = fields.find(([words]) => words.test(message))?.[1];
  if (!found) return null;
  // Only a bucket has keys: elsewhere it is the place that denies access.
  return { field: found === 'accessKeyId' && type !== 's3' ? 'endpoint' : found, message };
}

export function plain(message: string): string {
  return message.replace(/^admission webhook "[^"]*" denied the request: /, '').replace(/^value: /, '');
}
