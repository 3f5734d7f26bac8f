import { useSyncExternalStore } from 'react';
import { en } from './en';
import type { KeyOf, Message, Translation, Values } from './message';
import { fill } from './message';

export type Key = KeyOf<typeof en>;
export type Language = 'en' | 'de';
type Texts = Translation<typeof en>;

/** English comes with the page; others are loaded when they are chosen. */
const loaders: Record<Language, () => Promise<Texts>> = {
  en: () => Promise.resolve(en),
  de: () => import('./de').then((module) => module.de),
};

export const languages: { id: Language; name: string }[] = [
  { id: 'en', name: 'English' },
  { id: 'de', name: 'Deutsch' },
];

const storageKey = 'croft.language';
let current: Language = 'en';
let texts: Texts = en;
const listeners = new Set<() => void>();

export function t(key: Key, values?: Values): string {
  const dot = key.indexOf('.');
  const area: Record<string, Message> = texts[key.slice(0, dot) as keyof Texts];
  const message = area[key.slice(dot + 1)];
  return message === undefined ? key : fill(message, current, values);
}

export function language(): Language {
  return current;
}

export async function chooseLanguage(chosen: Language): Promise<void> {
  texts = await loaders[chosen]();
  current = chosen;
  document.documentElement.lang = chosen;
  localStorage.setItem(storageKey, chosen);
  listeners.forEach((listener) => listener());
}

/** What was chosen before, else the first of the browser's languages that there is. */
export async function startLanguage(): Promise<void> {
  const stored = localStorage.getItem(storageKey);
  const wanted = [stored, ...navigator.languages.map((tag) => tag.slice(0, 2))];
  const found = wanted.find((tag): tag is Language => tag !== null && tag in loaders) ?? 'en';
  if (found !== 'en') await chooseLanguage(found);
}

export function useLanguage(): Language {
  return useSyncExternalStore(subscribe, language);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
