import { send } from './client';
import { errorFromBody } from './errors';
import type { KubeObject, ListPage, WatchEvent } from './types';
import { isRecord } from './types';

/** How a feed talks to the server; tests put another one in its place. */
export interface Transport {
  list<T extends KubeObject>(path: string, params: URLSearchParams, signal: AbortSignal): Promise<ListPage<T>>;
  /** Returns when the server ends the watch; `opened` is called once the server has agreed to it. */
  watch<T extends KubeObject>(path: string, params: URLSearchParams, signal: AbortSignal, opened: () => void, onEvent: (event: WatchEvent<T>) => void): Promise<void>;
}

export const httpTransport: Transport = {
  async list<T extends KubeObject>(path: string, params: URLSearchParams, signal: AbortSignal) {
    const response = await send('GET', `${path}?${params}`, undefined, { signal });
    return (await response.json()) as ListPage<T>;
  },

  async watch<T extends KubeObject>(path: string, params: URLSearchParams, signal: AbortSignal, opened: () => void, onEvent: (event: WatchEvent<T>) => void) {
    const response = await send('GET', `${path}?${params}`, undefined, { signal });
    opened();
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const split = lineSplitter((line) => onEvent(watchEvent<T>(line)));
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      split(value);
    }
  },
};

/** Watch events come one a line, in pieces that end anywhere. */
export function lineSplitter(onLine: (line: string) => void): (piece: string) => void {
  let rest = '';
  return (piece) => {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') onLine(line);
  };
}

function watchEvent<T extends KubeObject>(line: string): WatchEvent<T> {
  const event = JSON.parse(line) as WatchEvent<T>;
  if (event.type !== 'ERROR') return event;
  const status: unknown = event.object;
  const code = isRecord(status) && typeof status['code'] === 'number' ? status['code'] : 500;
  throw errorFromBody(code, status, 'the watch failed');
}
