import type { Pause } from './feed';
import { refusedMs } from './feed';

/**
 * Whether the page hears from the server. Every feed reports here; when one of them gets through again, those that
 * wait to retry do so at once.
 */
class Connection {
  private readonly broken = new Set<object>();
  private readonly listeners = new Set<() => void>();
  private readonly sleepers = new Set<() => void>();
  private readonly refused = new Set<() => void>();

  get connected(): boolean {
    return this.broken.size === 0;
  }

  report(feed: object, ok: boolean): void {
    const before = this.connected;
    if (ok) this.broken.delete(feed);
    else this.broken.add(feed);
    if (ok) this.wake();
    if (before !== this.connected) this.listeners.forEach((listener) => listener());
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  wake = (): void => {
    for (const sleeper of this.sleepers) sleeper();
  };

  /** Also those that were refused: somebody has signed in. */
  wakeAll = (): void => {
    this.wake();
    for (const sleeper of this.refused) sleeper();
  };

  pause: Pause = (ms, signal) =>
    new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.sleepers.delete(done);
        this.refused.delete(done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      // Only those who wait because nobody answered gain from somebody else's answer.
      if (ms >= refusedMs) this.refused.add(done);
      else if (ms >= 500) this.sleepers.add(done);
      signal.addEventListener('abort', done);
    });
}

export const connection = new Connection();
