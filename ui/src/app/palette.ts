import { useSyncExternalStore } from 'react';

/** Whether the command palette is open; the palette itself is loaded when it is first used. */

let open = false;
const listeners = new Set<() => void>();

export function openPalette(): void {
  set(true);
}

export function closePalette(): void {
  set(false);
}

export function usePaletteOpen(): boolean {
  return useSyncExternalStore(subscribe, () => open);
}

function set(next: boolean): void {
  open = next;
  listeners.forEach((listener) => listener());
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (listeners.size === 1) window.addEventListener('keydown', onKey);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) window.removeEventListener('keydown', onKey);
  };
}

function onKey(event: KeyboardEvent): void {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
  event.preventDefault();
  set(!open);
}
