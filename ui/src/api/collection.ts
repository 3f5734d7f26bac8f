import { connection } from './connection';
import type { ApiError } from './errors';
import type { FeedSource, Pause } from './feed';
import { Feed } from './feed';
import type { Transport } from './transport';
import { httpTransport } from './transport';
import type { KubeObject } from './types';

export type Phase = 'loading' | 'ready' | 'failed';

/** What a collection holds at one moment; a new object whenever anything changed. */
export interface Snapshot<T> {
  readonly items: readonly T[];
  readonly phase: Phase;
  readonly error: ApiError | null;
}

export interface CollectionOptions {
  transport?: Transport;
  pause?: Pause;
  /** Asked once if the whole cluster may not be listed: where may the caller look instead? */
  fallback?: () => Promise<FeedSource[]>;
  lingerMs?: number;
}

const frameMs = 16;
/** With thousands of objects each snapshot is filtered and sorted anew; ten of those a second look live. */
const crowdedFrameMs = 120;
const crowd = 2_000;

/**
 * All objects of a kind that the caller may see, kept up to date outside React. It works while somebody is
 * subscribed, and a little longer, so that going back and forth between screens does not load anything twice.
 */
export class Collection<T extends KubeObject> {
  private readonly feeds = new Map<Feed<T>, Map<string, T>>();
  private readonly listeners = new Set<() => void>();
  private current: Snapshot<T> = { items: [], phase: 'loading', error: null };
  private phase: Phase = 'loading';
  private error: ApiError | null = null;
  private dirty = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: AbortController | undefined;
  private linger: ReturnType<typeof setTimeout> | undefined;
  private waiting = 0;

  constructor(
    private readonly source: FeedSource,
    private readonly options: CollectionOptions = {},
  ) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    clearTimeout(this.linger);
    if (!this.running) this.start();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size > 0) return;
      this.linger = setTimeout(() => this.stop(), this.options.lingerMs ?? 60_000);
    };
  };

  snapshot = (): Snapshot<T> => this.current;

  /** Forgets everything: somebody else signs in. */
  stop(): void {
    this.running?.abort();
    this.running = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.feeds.clear();
    this.phase = 'loading';
    this.error = null;
    this.current = { items: [], phase: 'loading', error: null };
  }

  /** Shows what a write answered without waiting for the watch to bring the same. */
  accept(object: T): void {
    for (const items of this.feeds.values()) {
      if (!items.has(keyOf(object))) continue;
      items.set(keyOf(object), object);
      this.schedule();
    }
  }

  private start(): void {
    this.running = new AbortController();
    this.waiting = 1;
    this.open(this.source, this.running.signal, this.options.fallback);
  }

  private open(source: FeedSource, signal: AbortSignal, fallback?: () => Promise<FeedSource[]>): void {
    const items = new Map<string, T>();
    const own = new AbortController();
    const both = AbortSignal.any([signal, own.signal]);
    let first = true;
    const arrived = () => {
      if (first) this.waiting -= 1;
      first = false;
      if (this.waiting <= 0) this.phase = 'ready';
      this.schedule();
    };
    const feed: Feed<T> = new Feed<T>(
      source,
      {
        page: (page) => {
          for (const object of page) items.set(keyOf(object), object);
          this.schedule();
        },
        replace: (all) => {
          merge(items, all);
          arrived();
        },
        change: (type, object) => {
          if (type === 'DELETED') items.delete(keyOf(object));
          else items.set(keyOf(object), object);
          this.schedule();
        },
        state: (error) => {
          connection.report(feed, !error?.unreachable);
          if (error?.forbidden && fallback) {
            own.abort();
            this.feeds.delete(feed);
            void this.narrow(signal, fallback, error);
            return;
          }
          // One namespace of several that is closed to the caller is no failure of the whole.
          if (error?.forbidden && this.feeds.size > 1) arrived();
          else this.fail(error);
        },
      },
      this.options.transport ?? httpTransport,
      this.options.pause ?? connection.pause,
    );
    this.feeds.set(feed, items);
    void feed.run(both).finally(() => connection.report(feed, true));
  }

  /** Follows single namespaces where the whole cluster is not for the caller to see. */
  private async narrow(signal: AbortSignal, fallback: () => Promise<FeedSource[]>, refusal: ApiError): Promise<void> {
    const sources = await fallback().catch(() => []);
    if (signal.aborted) return;
    if (sources.length === 0) {
      this.fail(refusal);
      return;
    }
    this.waiting = sources.length;
    for (const source of sources) this.open(source, signal);
  }

  private fail(error: ApiError | null): void {
    this.error = error;
    // What is known stays on the screen while the server cannot be reached.
    if (error && this.phase !== 'ready' && !error.unreachable) this.phase = 'failed';
    if (error && this.phase === 'loading' && error.unreachable) this.phase = 'failed';
    if (!error && this.phase === 'failed') this.phase = 'ready';
    this.schedule();
  }

  private schedule(): void {
    this.dirty = true;
    if (this.timer !== undefined) return;
    const wait = this.current.items.length > crowd ? crowdedFrameMs : frameMs;
    this.timer = setTimeout(() => this.flush(), wait);
  }

  private flush(): void {
    this.timer = undefined;
    if (!this.dirty) return;
    this.dirty = false;
    const maps = [...this.feeds.values()];
    const items = maps.length === 1 && maps[0] ? [...maps[0].values()] : maps.flatMap((map) => [...map.values()]);
    this.current = { items, phase: this.phase, error: this.error };
    this.listeners.forEach((listener) => listener());
  }
}

export function keyOf(object: KubeObject): string {
  return `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
}

/** Objects that did not change stay the very same, so that nothing is drawn anew for them. */
function merge<T extends KubeObject>(items: Map<string, T>, all: T[]): void {
  const before = new Map(items);
  items.clear();
  for (const object of all) {
    const known = before.get(keyOf(object));
    const same = known && known.metadata.resourceVersion === object.metadata.resourceVersion && known.metadata.uid === object.metadata.uid;
    items.set(keyOf(object), same ? known : object);
  }
}
