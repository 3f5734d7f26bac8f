import { queryOptions, useQuery } from '@tanstack/react-query';
import { request } from './client';
import type { Kind } from './kinds';
import type { ResourceRule } from './rules';
import { allowed } from './rules';

const freshMs = 60_000;

/**
 * What the caller may do, so that actions he may not use are not shown. The server decides anyway; until it has
 * said what is allowed, nothing is.
 */
export type Can = (verb: string, kind: Kind, name?: string) => boolean;

/** For namespaced kinds, in one namespace. */
export function useCan(namespace: string): Can {
  const { data } = useQuery({
    queryKey: ['rules', namespace],
    queryFn: () => rulesOf(namespace),
    staleTime: freshMs,
    enabled: namespace !== '',
  });
  return (verb, kind, name) => allowed(data ?? [], { verb, group: kind.group, resource: kind.plural, ...(name && { name }) });
}

/** For cluster-wide kinds, and for namespaced ones in every namespace. */
export function useMay(verb: string, kind: Kind): boolean {
  const { data } = useQuery({
    queryKey: ['may', verb, kind.group, kind.plural],
    queryFn: () => review({ resourceAttributes: { verb, group: kind.group, resource: kind.plural } }),
    staleTime: freshMs,
  });
  return data ?? false;
}

/** Whether a path that is no object may be read. */
export function mayGetQuery(path: string) {
  return queryOptions({
    queryKey: ['may', 'get', path],
    queryFn: () => review({ nonResourceAttributes: { verb: 'get', path } }),
    staleTime: freshMs,
  });
}

async function rulesOf(namespace: string): Promise<ResourceRule[]> {
  const review = await request<{ status: { resourceRules?: ResourceRule[] } }>('POST', '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews', {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectRulesReview',
    spec: { namespace },
  });
  return review.status.resourceRules ?? [];
}

async function review(spec: Record<string, unknown>): Promise<boolean> {
  const answer = await request<{ status: { allowed?: boolean } }>('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec,
  });
  return answer.status.allowed ?? false;
}
