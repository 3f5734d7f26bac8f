import type { Page } from '@playwright/test';

export interface Wire {
  bytes: number;
  requests: number;
}

/** Counts what comes over the wire for a tab from here on: heads and bodies, compressed as they came. */
export async function countBytes(tab: Page): Promise<() => Wire> {
  const session = await tab.context().newCDPSession(tab);
  const received = new Map<string, number>();
  const add = (id: string, bytes: number) => received.set(id, (received.get(id) ?? 0) + bytes);
  session.on('Network.responseReceived', ({ requestId, response }) => add(requestId, response.encodedDataLength));
  session.on('Network.dataReceived', ({ requestId, encodedDataLength }) => add(requestId, encodedDataLength));
  // The whole of it, heads included. A watch never gets here: for it the pieces count.
  session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => received.set(requestId, encodedDataLength));
  await session.send('Network.enable');
  return () => ({ bytes: [...received.values()].reduce((sum, bytes) => sum + bytes, 0), requests: received.size });
}
