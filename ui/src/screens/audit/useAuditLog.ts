import { useInfiniteQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useState } from 'react';
import type { AuditEvent, AuditPage } from '@/api/audit';
import { auditPath } from '@/api/audit';
import { request } from '@/api/client';
import { keyOf } from './entry';
import type { Filters } from './filters';
import { queryOf } from './filters';

const pollMs = 4_000;
/** Of those that came while the screen was open; older ones can be loaded again. */
const mostNewer = 5_000;

interface Newer {
  of: AuditPage;
  entries: readonly AuditEvent[];
}

const nothing: readonly AuditEvent[] = [];

/** The log as far as it was loaded, the newest first; what comes is added while somebody looks. */
export function useAuditLog(filters: Filters) {
  const pages = useInfiniteQuery({
    queryKey: ['audit', filters],
    queryFn: ({ pageParam, signal }) => read(filters, { limit: '100', ...(pageParam && { before: pageParam }) }, signal),
    initialPageParam: '',
    getNextPageParam: (last) => last.before,
    // Older pages do not change, and newer ones are asked for below.
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
    retry: false,
    gcTime: 0,
  });
  const first = pages.data?.pages[0];
  const newer = useNewer(filters, first);
  const entries = useMemo(() => joined(newer, pages.data?.pages ?? []), [newer, pages.data?.pages]);

  // The server searches a part of the log at a time; until something was found, this goes on by itself.
  const { hasNextPage, isFetching, isError, fetchNextPage } = pages;
  const goOn = entries.length === 0 && hasNextPage && !isFetching && !isError;
  useEffect(() => {
    if (goOn) void fetchNextPage();
  }, [goOn, fetchNextPage]);

  return { entries, pages };
}

function read(filters: Filters, more: Record<string, string>, signal?: AbortSignal): Promise<AuditPage> {
  const asked = new URLSearchParams(queryOf(filters, Date.now()));
  for (const [key, value] of Object.entries(more)) asked.set(key, value);
  return request('GET', `${auditPath}?${asked}`, undefined, signal ? { signal } : {});
}

/** What came after the first page was loaded. */
function useNewer(filters: Filters, first: AuditPage | undefined): readonly AuditEvent[] {
  const [newer, setNewer] = useState<Newer | null>(null);
  useEffect(() => {
    if (!first) return undefined;
    let { after } = first;
    let entries: readonly AuditEvent[] = nothing;
    let busy = false;
    const stop = new AbortController();
    const look = async () => {
      if (busy || document.hidden) return;
      busy = true;
      try {
        const page = await read(filters, { limit: '1000', ...(after && { after }) }, stop.signal);
        after = page.after ?? after;
        if (page.items.length > 0) {
          entries = [...page.items, ...entries].slice(0, mostNewer);
          setNewer({ of: first, entries });
        }
      } catch {
        // The next try is soon, and the page says by itself if the server is away.
      } finally {
        busy = false;
      }
    };
    const timer = setInterval(() => void look(), pollMs);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, [filters, first]);
  return newer && newer.of === first ? newer.entries : nothing;
}

/** In an empty log there is no place to go on from, so that the first entries may be told twice. */
export function joined(newer: readonly AuditEvent[], pages: readonly AuditPage[]): readonly AuditEvent[] {
  const found = new Map<string, AuditEvent>();
  for (const event of [...newer, ...pages.flatMap((page) => page.items)]) {
    const key = keyOf(event);
    if (!found.has(key)) found.set(key, event);
  }
  return [...found.values()];
}
