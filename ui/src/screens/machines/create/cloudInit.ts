import { parseDocument, stringify } from 'yaml';
import { isRecord } from '@/api/types';

export interface Access {
  user: string;
  password: string;
  keys: readonly string[];
  installAgent: boolean;
}

const header = '#cloud-config\n';

/**
 * The cloud-init of a new machine: what the user wrote, with user, password and keys put in. Text that is not a
 * cloud-config (a script, say) is left as it is.
 */
export function userDataOf(own: string, access: Access): string {
  const wanted = fieldsOf(access);
  const nothing = Object.keys(wanted).length === 0;
  if (own.trim() === '') return nothing ? '' : header + stringify(wanted, { lineWidth: 0 });
  if (nothing || !isCloudConfig(own)) return own;
  const base: unknown = parseDocument(own).toJS();
  return header + stringify(merged(isRecord(base) ? base : {}, wanted), { lineWidth: 0 });
}

export function isCloudConfig(text: string): boolean {
  return /^#cloud-config\s*$/m.test(text.split('\n')[0] ?? '');
}

/** Why cloud-init would not understand this, if so. */
export function problemOf(text: string): string | undefined {
  if (text.trim() === '' || !isCloudConfig(text)) return undefined;
  const document = parseDocument(text);
  if (document.errors[0]) return document.errors[0].message;
  const value: unknown = document.toJS();
  return value === null || isRecord(value) ? undefined : 'a mapping is needed';
}

function fieldsOf({ user, password, keys, installAgent }: Access): Record<string, unknown> {
  return {
    ...(user && { user }),
    ...(password && { password, chpasswd: { expire: false }, ssh_pwauth: true }),
    ...(keys.length > 0 && { ssh_authorized_keys: [...keys] }),
    ...(installAgent && { package_update: true, packages: ['qemu-guest-agent'], runcmd: [['systemctl', 'enable', '--now', 'qemu-guest-agent.service']] }),
  };
}

/** Lists are put together; otherwise what the form says wins. */
function merged(base: Record<string, unknown>, wanted: Record<string, unknown>): Record<string, unknown> {
  const result = { ...base };
  for (const [key, value] of Object.entries(wanted)) {
    const before = base[key];
    result[key] = Array.isArray(before) && Array.isArray(value) ? [...(before as unknown[]), ...(value as unknown[])] : value;
  }
  return result;
}
