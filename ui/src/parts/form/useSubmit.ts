import { useCallback, useState } from 'react';
import type { ApiError } from '@/api/errors';
import { asApiError } from '@/api/errors';

/** Runs what a form asks for, once at a time, and keeps the server's refusal for the fields it names. */
export function useSubmit(run: () => Promise<void>) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);

  const submit = useCallback(async () => {
    setBusy(true);
    setError(null);
    try {
      await run();
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  }, [run]);

  return { busy, error, submit, clearError: useCallback(() => setError(null), []) };
}

/** What the server said about a field, by the beginning of the path it names. */
export function refusalOf(error: ApiError | null, ...paths: string[]): string | undefined {
  const cause = error?.causes.find(({ field }) => paths.some((path) => field === path || field.startsWith(`${path}.`) || field.startsWith(`${path}[`)));
  return cause?.message;
}

/** Whether all that the server said has been shown at its field. */
export function allPlaced(error: ApiError | null, ...paths: string[]): boolean {
  if (!error || error.causes.length === 0) return false;
  return error.causes.every(({ field }) => paths.some((path) => field === path || field.startsWith(`${path}.`) || field.startsWith(`${path}[`)));
}
