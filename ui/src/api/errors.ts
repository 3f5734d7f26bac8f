import { isRecord } from './types';

/** One field that the server did not like. */
export interface Cause {
  field: string;
  reason: string;
  message: string;
}

/** A request that failed: refused by the server, or never answered (`code` 0). */
export class ApiError extends Error {
  override readonly name = 'ApiError';

  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
    readonly causes: readonly Cause[] = [],
  ) {
    super(message);
  }

  get unreachable(): boolean {
    return this.code === 0 || this.code === 502 || this.code === 503 || this.code === 504;
  }

  get forbidden(): boolean {
    return this.code === 403;
  }

  get notFound(): boolean {
    return this.code === 404;
  }

  /** The history that a watch or a list wanted to continue from is no longer kept. */
  get gone(): boolean {
    return this.code === 410 || this.reason === 'Expired' || this.reason === 'Gone';
  }
}

/** Reads a `metav1.Status` of Kubernetes, or an error of Steve and Rancher's API. */
export function errorFromBody(code: number, body: unknown, fallback: string): ApiError {
  if (!isRecord(body)) return new ApiError(code, 'Unknown', fallback);
  const message = text(body['message']) || fallback;
  if (body['type'] === 'error') return new ApiError(code, text(body['code']) || 'Unknown', message);
  const details = isRecord(body['details']) ? body['details'] : {};
  const causes = Array.isArray(details['causes']) ? details['causes'].filter(isRecord).map(cause) : [];
  const told = typeof body['code'] === 'number' ? body['code'] : code;
  return new ApiError(told, text(body['reason']) || 'Unknown', message, causes);
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ApiError(0, 'Unreachable', message);
}

function cause(raw: Record<string, unknown>): Cause {
  return { field: text(raw['field']), reason: text(raw['reason']), message: text(raw['message']) };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
