import { useCallback, useSyncExternalStore } from 'react';

/** What the page remembers in this browser: choices of layout, never anything secret. */

const listeners = new Set<() => void>();
const parsed = new Map<string, { raw: string | null; value: unknown }>();

export function readPreference<T>(name: string, fallback: T): T {
  const raw = localStorage.getItem(`croft.${name}`);
  const known = parsed.get(name);
  if (known && known.raw === raw) return known.value as T;
  let value: unknown = fallback;
  try {
    if (raw !== null) value = JSON.parse(raw);
  } catch {
    // Somebody else wrote this; the fallback will do.
  }
  parsed.set(name, { raw, value });
  return value as T;
}

export function writePreference(name: string, value: unknown): void {
  localStorage.setItem(`croft.${name}`, JSON.stringify(value));
  listeners.forEach((listener) => listener());
}

export function usePreference<T>(name: string, fallback: T): [T, (value: T) => void] {
  const value = useSyncExternalStore(subscribe, () => readPreference(name, fallback));
  const write = useCallback((next: T) => writePreference(name, next), [name]);
  return [value, write];
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  window.addEventListener('storage', listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener('storage', listener);
  };
}
