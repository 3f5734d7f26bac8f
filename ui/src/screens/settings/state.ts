import type { Setting } from '@/api/harvester';

/** What the server says against a value that it has taken. */
export function troubleOf(setting: Setting): string | undefined {
  const configured = setting.status?.conditions?.find((condition) => condition.type === 'configured');
  return configured?.status === 'False' ? configured.message || configured.reason : undefined;
}
