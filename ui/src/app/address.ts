import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useCallback } from 'react';
import type { KubeObject } from '@/api/types';

/** The variable parts of the address: `/machines/$namespace/$name`. */
export function useAddress(): Record<string, string> {
  return useParams({ strict: false }) as Record<string, string>;
}

/** What follows the question mark: filters and such that belong into a link. */
export function useQueryState(): [Record<string, string>, (changes: Record<string, string | undefined>) => void] {
  const raw = useSearch({ strict: false }) as Record<string, unknown>;
  const navigate = useNavigate();
  const change = useCallback(
    (changes: Record<string, string | undefined>) => {
      void navigate({
        to: '.',
        replace: true,
        search: (before: Record<string, unknown>) => withoutEmpty({ ...before, ...changes }),
      });
    },
    [navigate],
  );
  return [Object.fromEntries(Object.entries(raw).map(([name, value]) => [name, String(value)])), change];
}

function withoutEmpty(values: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined && value !== ''));
}

export function objectAddress(area: string, object: KubeObject): string {
  const { namespace, name } = object.metadata;
  return `${area}/${namespace ? `${encodeURIComponent(namespace)}/` : ''}${encodeURIComponent(name)}`;
}
