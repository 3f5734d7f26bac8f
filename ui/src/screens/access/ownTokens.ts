import { useQuery } from '@tanstack/react-query';
import { request } from '@/api/client';

/** The caller's own tokens, which everybody may see and end: `/v3/tokens`. */
export interface OwnToken {
  id: string;
  description: string;
  created: string;
  expiresAt: string;
  expired: boolean;
  current: boolean;
  /** Everything but a session. */
  isDerived: boolean;
  userId: string;
  /** Only in the answer to making it. */
  token?: string;
}

export const ownTokensKey = ['ownTokens'];

export function useOwnTokens() {
  return useQuery({ queryKey: ownTokensKey, queryFn: () => request<{ data: OwnToken[] }>('GET', '/v3/tokens'), refetchInterval: 15_000, retry: false });
}

export function createToken(description: string, ttlDays: number): Promise<OwnToken> {
  return request('POST', '/v3/tokens', { type: 'token', description, ttl: ttlDays * 86_400_000 });
}

export function endToken(id: string): Promise<unknown> {
  return request('DELETE', `/v3/tokens/${encodeURIComponent(id)}`);
}
