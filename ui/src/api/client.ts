import { ApiError, asApiError, errorFromBody } from './errors';
import type { Kind } from './kinds';
import { objectPath, listPath, stevePath } from './kinds';
import type { KubeObject } from './types';

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

interface RequestOptions {
  signal?: AbortSignal;
  contentType?: string;
}

/** Told when the session is over, whoever asked: by 401, or by 403 to somebody whose cookies have run out. */
let onUnauthorized: () => void = () => undefined;

export function whenUnauthorized(listener: () => void): void {
  onUnauthorized = listener;
}

/** The server takes a change by cookie only with the value of this readable cookie in a header. */
export function csrfToken(): string {
  return /(?:^|; )CSRF=([^;]*)/.exec(document.cookie)?.[1] ?? '';
}

export async function send(method: Method, path: string, body?: BodyInit, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (method !== 'GET') headers['X-API-CSRF'] = csrfToken();
  if (body !== undefined) headers['Content-Type'] = options.contentType ?? 'application/json';
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body: body ?? null, signal: options.signal ?? null, credentials: 'same-origin' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw asApiError(error);
  }
  if (response.ok) return response;
  if (response.status === 401 || (response.status === 403 && csrfToken() === '')) onUnauthorized();
  throw errorFromBody(response.status, await parsed(response), `${response.status} ${response.statusText}`);
}

export async function request<T>(method: Method, path: string, body?: unknown, options?: RequestOptions): Promise<T> {
  const response = await send(method, path, body === undefined ? undefined : JSON.stringify(body), options);
  return (await parsed(response)) as T;
}

async function parsed(response: Response): Promise<unknown> {
  const content = await response.text();
  if (content === '') return undefined;
  try {
    return JSON.parse(content) as unknown;
  } catch {
    if (response.ok) throw new ApiError(response.status, 'Unreadable', 'the server sent something that is not JSON');
    return undefined;
  }
}

export function getObject<T extends KubeObject>(kind: Kind<T>, namespace: string | undefined, name: string, signal?: AbortSignal): Promise<T> {
  return request('GET', objectPath(kind, namespace, name), undefined, signal ? { signal } : {});
}

export function createObject<T extends KubeObject>(kind: Kind<T>, object: T, dryRun = false): Promise<T> {
  const path = listPath(kind, object.metadata.namespace);
  return request('POST', dryRun ? `${path}?dryRun=All` : path, object);
}

export function replaceObject<T extends KubeObject>(kind: Kind<T>, object: T, dryRun = false): Promise<T> {
  const path = objectPath(kind, object.metadata.namespace, object.metadata.name);
  return request('PUT', dryRun ? `${path}?dryRun=All` : path, object);
}

/** A JSON merge patch: what is null is removed, what is not named stays. */
export function mergePatch<T extends KubeObject>(kind: Kind<T>, object: T, patch: unknown): Promise<T> {
  const path = objectPath(kind, object.metadata.namespace, object.metadata.name);
  return request('PATCH', path, patch, { contentType: 'application/merge-patch+json' });
}

export function jsonPatch<T extends KubeObject>(kind: Kind<T>, object: T, patch: unknown[]): Promise<T> {
  const path = objectPath(kind, object.metadata.namespace, object.metadata.name);
  return request('PATCH', path, patch, { contentType: 'application/json-patch+json' });
}

export function deleteObject(kind: Kind, object: KubeObject): Promise<unknown> {
  return request('DELETE', objectPath(kind, object.metadata.namespace, object.metadata.name));
}

/** Harvester's actions, which are asked for through Steve's paths. */
export function steveAction<R = unknown>(kind: Kind, object: KubeObject, action: string, input: unknown = {}): Promise<R> {
  const { namespace, name } = object.metadata;
  const path = `${stevePath(kind)}/${namespace ? `${enc(namespace)}/` : ''}${enc(name)}?action=${enc(action)}`;
  return request('POST', path, input);
}

/** KubeVirt's subresources of machines and instances. */
export function subresource(plural: 'virtualmachines' | 'virtualmachineinstances', object: KubeObject, name: string): string {
  const { namespace = 'default' } = object.metadata;
  return `/apis/subresources.kubevirt.io/v1/namespaces/${enc(namespace)}/${plural}/${enc(object.metadata.name)}/${name}`;
}

function enc(segment: string): string {
  return encodeURIComponent(segment);
}
