import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Collection } from './collection';
import { ApiError } from './errors';
import { lineSplitter } from './transport';
import type { Transport } from './transport';
import type { KubeObject, ListPage, WatchEvent } from './types';

interface Watch {
  path: string;
  params: URLSearchParams;
  emit: (event: WatchEvent<KubeObject>) => void;
  end: (error?: Error) => void;
}

/** A server that answers lists from a queue and holds watches open until the test ends them. */
class FakeServer implements Transport {
  lists: (ListPage<KubeObject> | ApiError)[] = [];
  listed: string[] = [];
  watches: Watch[] = [];

  async list<T extends KubeObject>(path: string, params: URLSearchParams): Promise<ListPage<T>> {
    this.listed.push(`${path}?${params}`);
    const next = this.lists.shift() ?? page([], '1');
    if (next instanceof ApiError) throw next;
    return next as ListPage<T>;
  }

  watch<T extends KubeObject>(path: string, params: URLSearchParams, signal: AbortSignal, opened: () => void, onEvent: (event: WatchEvent<T>) => void): Promise<void> {
    opened();
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => resolve());
      this.watches.push({ path, params, emit: onEvent as Watch['emit'], end: (error) => (error ? reject(error) : resolve()) });
    });
  }

  get last(): Watch {
    const watch = this.watches.at(-1);
    if (!watch) throw new Error('nobody watches');
    return watch;
  }
}

const thing = (name: string, version = '1'): KubeObject => ({ metadata: { name, namespace: 'default', uid: name, resourceVersion: version } });
const page = (items: KubeObject[], resourceVersion: string, more?: string): ListPage<KubeObject> => ({ items, metadata: { resourceVersion, ...(more && { continue: more }) } });

let server: FakeServer;
let collection: Collection<KubeObject>;
let unsubscribe: () => void;
const names = () => collection.snapshot().items.map((item) => item.metadata.name);
const settle = () => vi.advanceTimersByTimeAsync(200);

beforeEach(() => {
  vi.useFakeTimers();
  server = new FakeServer();
});
afterEach(() => {
  unsubscribe();
  collection.stop();
  vi.useRealTimers();
});

async function start(fallback?: () => Promise<{ path: string }[]>): Promise<void> {
  collection = new Collection({ path: '/things' }, { transport: server, lingerMs: 0, ...(fallback && { fallback }) });
  unsubscribe = collection.subscribe(() => undefined);
  await settle();
}

describe('a collection', () => {
  it('lists all pages and watches from where the list was', async () => {
    server.lists = [page([thing('a')], '7', 'next'), page([thing('b')], '7')];
    await start();
    expect(names()).toEqual(['a', 'b']);
    expect(collection.snapshot().phase).toBe('ready');
    expect(server.listed[1]).toContain('continue=next');
    expect(server.last.params.get('resourceVersion')).toBe('7');
  });

  it('applies additions, changes and deletions', async () => {
    server.lists = [page([thing('a')], '1')];
    await start();
    server.last.emit({ type: 'ADDED', object: thing('b', '2') });
    server.last.emit({ type: 'MODIFIED', object: thing('a', '3') });
    server.last.emit({ type: 'DELETED', object: thing('b', '4') });
    await settle();
    expect(names()).toEqual(['a']);
    expect(collection.snapshot().items[0]?.metadata.resourceVersion).toBe('3');
  });

  it('goes on from the last version, bookmarks included, when the server ends the watch', async () => {
    await start();
    server.last.emit({ type: 'BOOKMARK', object: thing('', '41') });
    server.last.end();
    await vi.advanceTimersByTimeAsync(1_500);
    expect(server.watches).toHaveLength(2);
    expect(server.last.params.get('resourceVersion')).toBe('41');
    expect(server.listed).toHaveLength(1);
  });

  it('keeps what it shows while the server is away, and says so', async () => {
    server.lists = [page([thing('a')], '5')];
    await start();
    server.last.end(new TypeError('network'));
    await settle();
    expect(names()).toEqual(['a']);
    expect(collection.snapshot().phase).toBe('ready');
    expect(collection.snapshot().error?.unreachable).toBe(true);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(collection.snapshot().error).toBeNull();
    expect(server.last.params.get('resourceVersion')).toBe('5');
  });

  it('lists anew after 410 without ever being empty, and keeps unchanged objects the same', async () => {
    server.lists = [page([thing('a'), thing('b')], '5')];
    await start();
    const before = collection.snapshot().items[0];
    const seen: number[] = [];
    const stop = collection.subscribe(() => seen.push(collection.snapshot().items.length));
    server.lists = [page([thing('a'), thing('c')], '90')];
    server.last.end(new ApiError(410, 'Expired', 'too old'));
    await settle();
    stop();
    expect(names()).toEqual(['a', 'c']);
    expect(collection.snapshot().items[0]).toBe(before);
    expect(Math.min(...seen)).toBe(2);
    expect(server.last.params.get('resourceVersion')).toBe('90');
  });

  it('looks into single namespaces when the cluster is not to be seen', async () => {
    server.lists = [new ApiError(403, 'Forbidden', 'no'), page([thing('a')], '1'), page([thing('b')], '1')];
    await start(() => Promise.resolve([{ path: '/ns/one' }, { path: '/ns/two' }]));
    expect(names()).toEqual(['a', 'b']);
    expect(collection.snapshot().phase).toBe('ready');
    expect(server.watches.map((watch) => watch.path)).toEqual(['/ns/one', '/ns/two']);
  });

  it('is ready when some of the namespaces are closed', async () => {
    server.lists = [new ApiError(403, 'Forbidden', 'no'), page([thing('a')], '1'), new ApiError(403, 'Forbidden', 'no')];
    await start(() => Promise.resolve([{ path: '/ns/one' }, { path: '/ns/two' }]));
    expect(names()).toEqual(['a']);
    expect(collection.snapshot().phase).toBe('ready');
  });

  it('fails visibly when it is forbidden everywhere', async () => {
    server.lists = [new ApiError(403, 'Forbidden', 'no')];
    await start(() => Promise.resolve([]));
    expect(collection.snapshot().phase).toBe('failed');
    expect(collection.snapshot().error?.forbidden).toBe(true);
  });

  it('takes many changes as one', async () => {
    await start();
    let told = 0;
    const stop = collection.subscribe(() => (told += 1));
    for (let i = 0; i < 500; i += 1) server.last.emit({ type: 'ADDED', object: thing(`t${i}`) });
    await settle();
    stop();
    expect(told).toBe(1);
    expect(names()).toHaveLength(500);
  });
});

describe('lines of a watch', () => {
  it('are put together from pieces', () => {
    const lines: string[] = [];
    const push = lineSplitter((line) => lines.push(line));
    push('{"a"');
    push(':1}\n{"b":2}\n{"c"');
    push(':3}\n');
    expect(lines).toEqual(['{"a":1}', '{"b":2}', '{"c":3}']);
  });
});
