import { csrfToken, deleteObject } from '@/api/client';
import { ApiError, asApiError, errorFromBody } from '@/api/errors';
import type { VirtualMachineImage } from '@/api/harvester';
import { kinds } from '@/api/kinds';

/**
 * Uploads that go on while the user looks at other screens. A file is sent in pieces, each of which is on the
 * server's disk once it is acknowledged, so a broken line or a pause costs no more than one piece.
 */

export type UploadState = 'sending' | 'converting' | 'paused' | 'failed' | 'done';

export interface Upload {
  /** `namespace/name` of the image. */
  readonly id: string;
  readonly image: VirtualMachineImage;
  readonly file: File;
  readonly state: UploadState;
  readonly sent: number;
  readonly bytesPerSecond: number;
  readonly error: ApiError | null;
}

const pieceBytes = 16 * 2 ** 20;
const patienceMs = [1_000, 2_000, 4_000, 8_000, 15_000];

let uploads: readonly Upload[] = [];
const listeners = new Set<() => void>();
const running = new Map<string, AbortController>();

export const uploadStore = {
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  snapshot: (): readonly Upload[] => uploads,
};

/** Starts, or goes on with the file that was chosen again. */
export function startUpload(image: VirtualMachineImage, file: File): void {
  const id = `${image.metadata.namespace}/${image.metadata.name}`;
  running.get(id)?.abort();
  uploads = [...uploads.filter((each) => each.id !== id), { id, image, file, state: 'sending', sent: 0, bytesPerSecond: 0, error: null }];
  tell();
  void run(id);
}

export function pauseUpload(id: string): void {
  running.get(id)?.abort();
  change(id, { state: 'paused', bytesPerSecond: 0 });
}

export function resumeUpload(id: string): void {
  change(id, { state: 'sending', error: null });
  void run(id);
}

/** Throws away what was sent, and the image. */
export async function cancelUpload(id: string): Promise<void> {
  running.get(id)?.abort();
  const upload = find(id);
  uploads = uploads.filter((each) => each.id !== id);
  tell();
  if (upload) await deleteObject(kinds.images, upload.image);
}

export function forgetUpload(id: string): void {
  uploads = uploads.filter((each) => each.id !== id);
  tell();
}

async function run(id: string): Promise<void> {
  const upload = find(id);
  if (!upload) return;
  const stop = new AbortController();
  running.set(id, stop);
  try {
    await sendAll(upload, stop.signal);
    change(id, { state: 'done', sent: upload.file.size });
  } catch (caught) {
    if (stop.signal.aborted) return;
    change(id, { state: 'failed', error: asApiError(caught), bytesPerSecond: 0 });
  } finally {
    if (running.get(id) === stop) running.delete(id);
  }
}

async function sendAll({ id, file }: Upload, signal: AbortSignal): Promise<void> {
  const path = `/croft/v1/images/${id}/upload`;
  let failures = 0;
  for (;;) {
    try {
      let offset = await offsetOf(path, signal);
      while (offset < file.size) {
        offset = await sendPiece(id, path, file, offset, signal);
        failures = 0;
      }
      return;
    } catch (caught) {
      const error = asApiError(caught);
      if (signal.aborted || !isPassing(error)) throw error;
      const wait = patienceMs[Math.min(failures, patienceMs.length - 1)] ?? 1_000;
      failures += 1;
      change(id, { bytesPerSecond: 0 });
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** A line that broke, a server that restarts, a piece that somebody else's request overtook: ask where it is, and go on. */
function isPassing(error: ApiError): boolean {
  return error.unreachable || error.code === 409 || error.code === 429;
}

async function offsetOf(path: string, signal: AbortSignal): Promise<number> {
  const response = await fetch(path, { method: 'HEAD', signal, credentials: 'same-origin' });
  if (!response.ok) throw new ApiError(response.status, 'Unknown', `${response.status} ${response.statusText}`);
  return Number(response.headers.get('Upload-Offset') ?? 0);
}

/** Sends one piece and tells how far it is meanwhile, which only XMLHttpRequest can. */
function sendPiece(id: string, path: string, file: File, offset: number, signal: AbortSignal): Promise<number> {
  const end = Math.min(offset + pieceBytes, file.size);
  const started = performance.now();
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    const abort = () => call.abort();
    call.open('PATCH', path);
    call.setRequestHeader('X-API-CSRF', csrfToken());
    call.setRequestHeader('Content-Type', 'application/offset+octet-stream');
    call.setRequestHeader('Upload-Offset', String(offset));
    call.setRequestHeader('Upload-Length', String(file.size));
    call.upload.onprogress = (event) => {
      const seconds = Math.max(0.05, (performance.now() - started) / 1000);
      change(id, { sent: offset + event.loaded, bytesPerSecond: event.loaded / seconds });
    };
    call.upload.onload = () => {
      if (end === file.size) change(id, { state: 'converting', sent: file.size, bytesPerSecond: 0 });
    };
    call.onload = () => {
      signal.removeEventListener('abort', abort);
      if (call.status >= 200 && call.status < 300) resolve(Number(call.getResponseHeader('Upload-Offset') ?? end));
      else reject(errorFromBody(call.status, parsed(call.responseText), `${call.status} ${call.statusText}`));
    };
    call.onerror = () => {
      signal.removeEventListener('abort', abort);
      change(id, { state: 'sending' });
      reject(new ApiError(0, 'Unreachable', 'the connection broke'));
    };
    call.onabort = () => reject(new ApiError(0, 'Aborted', 'paused'));
    signal.addEventListener('abort', abort);
    call.send(file.slice(offset, end));
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function find(id: string): Upload | undefined {
  return uploads.find((each) => each.id === id);
}

function change(id: string, changes: Partial<Upload>): void {
  uploads = uploads.map((each) => (each.id === id ? { ...each, ...changes } : each));
  tell();
}

function tell(): void {
  listeners.forEach((listener) => listener());
}
