import { asApiError } from '@/api/errors';
import { t } from '@/i18n';
import { say, sayError } from './notify';

const together = 8;

/** Does the same to many, a few at a time, and says in the end how many worked. */
export async function forEachOf<T>(action: string, items: readonly T[], run: (item: T) => Promise<unknown>): Promise<void> {
  const queue = [...items];
  const failures: unknown[] = [];
  const worker = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await run(item).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: Math.min(together, items.length) }, worker));
  const done = items.length - failures.length;
  if (done > 0) say(t('common.bulkDone', { action, count: done }));
  if (failures.length > 0) sayError(t('common.bulkFailed', { action, count: failures.length }), asApiError(failures[0]));
}
