/** What the screen asks the server for. All of it is in the address, so that a link shows the same. */

export const ranges = { hour: 3_600, day: 86_400, week: 7 * 86_400, month: 30 * 86_400 } as const;
export type Range = keyof typeof ranges;

/** Verbs that are chosen together, since nobody cares how a change was sent. */
export const verbGroups = {
  create: 'create',
  change: 'update,patch',
  delete: 'delete,deletecollection',
  connect: 'get',
  signIn: 'login,logout',
} as const;
export type VerbGroup = keyof typeof verbGroups;

export interface Filters {
  text: string;
  user: string;
  verb: VerbGroup | null;
  failed: boolean;
  range: Range | null;
}

export function filtersOf(params: Record<string, string>): Filters {
  const { text = '', user = '', verb = '', failed = '', range = '' } = params;
  return {
    text,
    user,
    verb: Object.hasOwn(verbGroups, verb) ? (verb as VerbGroup) : null,
    failed: failed === 'yes',
    range: Object.hasOwn(ranges, range) ? (range as Range) : null,
  };
}

/** The same as a query of the server's, without what is not wanted. */
export function queryOf({ text, user, verb, failed, range }: Filters, now: number): string {
  const query = new URLSearchParams();
  if (text.trim()) query.set('text', text.trim());
  if (user.trim()) query.set('user', user.trim());
  if (verb) query.set('verb', verbGroups[verb]);
  if (failed) query.set('code', '4xx,5xx');
  if (range) query.set('since', new Date(now - ranges[range] * 1_000).toISOString());
  return query.toString();
}
