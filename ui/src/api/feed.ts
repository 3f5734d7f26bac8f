import type { ApiError } from './errors';
import { asApiError } from './errors';
import type { Transport } from './transport';
import type { KubeObject, ListPage, WatchEvent } from './types';

/** What a feed tells the collection it fills. */
export interface FeedSink<T> {
  /** A page of the first list: shown at once, so that a long list does not keep anybody waiting. */
  page(items: T[]): void;
  /** A whole list: what is not in it is gone. */
  replace(items: T[]): void;
  change(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: T): void;
  /** The watch is open (null), or why there is none. */
  state(error: ApiError | null): void;
}

export interface FeedSource {
  path: string;
  fieldSelector?: string;
  labelSelector?: string;
}

/** A field selector for one value, whatever is in it: addresses are typed by people too. */
export function selecting(field: string, value: string): string {
  return `${field}=${value.replace(/[\\,=]/g, '\\$&')}`;
}

/** Waits so many milliseconds, or less if there is reason to try again sooner. */
export type Pause = (ms: number, signal: AbortSignal) => Promise<void>;

const pageSize = 1000;
const slowestRetryMs = 8_000;
/** How long those wait who were refused: rights seldom change while somebody looks. */
export const refusedMs = 30_000;

/**
 * Lists, then watches from there, for as long as the signal lets it. A watch that ends is taken up from the last
 * resourceVersion; only when the server no longer has that history (410) is everything listed again.
 */
export class Feed<T extends KubeObject> {
  private version: string | undefined;
  private failures = 0;
  private listedOnce = false;

  constructor(
    private readonly source: FeedSource,
    private readonly sink: FeedSink<T>,
    private readonly transport: Transport,
    private readonly pause: Pause,
  ) {}

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        this.version ??= await this.list(signal);
        await this.follow(this.version, signal);
        this.failures = 0;
      } catch (caught) {
        if (signal.aborted) return;
        const error = asApiError(caught);
        if (error.gone) this.version = undefined;
        else this.sink.state(error);
        this.failures += 1;
        await this.pause(retryDelay(error, this.failures), signal);
      }
    }
  }

  private async list(signal: AbortSignal): Promise<string> {
    const items: T[] = [];
    let more: string | undefined;
    let version = '';
    do {
      const params = this.params({ limit: String(pageSize), ...(more ? { continue: more } : {}) });
      const page: ListPage<T> = await this.transport.list<T>(this.source.path, params, signal);
      page.items.forEach(slim);
      items.push(...page.items);
      version = page.metadata.resourceVersion ?? '';
      more = page.metadata.continue || undefined;
      if (more && !this.listedOnce) this.sink.page(page.items);
    } while (more);
    this.listedOnce = true;
    this.sink.replace(items);
    return version;
  }

  private async follow(from: string, signal: AbortSignal): Promise<void> {
    const params = this.params({ watch: '1', allowWatchBookmarks: 'true', resourceVersion: from });
    const opened = () => {
      this.failures = 0;
      this.sink.state(null);
    };
    const started = Date.now();
    await this.transport.watch<T>(this.source.path, params, signal, opened, (event) => this.take(event));
    // The server may end a watch whenever it likes, but a stream of watches that end at once would be a storm.
    if (Date.now() - started < 1_000) await this.pause(1_000, signal);
  }

  private take(event: WatchEvent<T>): void {
    this.version = event.object.metadata.resourceVersion ?? this.version;
    if (event.type === 'BOOKMARK' || event.type === 'ERROR') return;
    slim(event.object);
    this.sink.change(event.type, event.object);
  }

  private params(own: Record<string, string>): URLSearchParams {
    const params = new URLSearchParams(own);
    if (this.source.fieldSelector) params.set('fieldSelector', this.source.fieldSelector);
    if (this.source.labelSelector) params.set('labelSelector', this.source.labelSelector);
    return params;
  }
}

/** Managed fields are half of an object and nobody looks at them here. */
function slim(object: KubeObject): void {
  delete object.metadata.managedFields;
}

export function retryDelay(error: ApiError, failures: number): number {
  if (error.forbidden || error.notFound || error.code === 401) return refusedMs;
  if (error.gone && failures === 1) return 0;
  return Math.min(slowestRetryMs, 250 * 2 ** Math.min(failures, 6));
}
