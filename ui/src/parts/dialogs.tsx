import { Fragment, useSyncExternalStore, type ReactNode } from 'react';

/** Dialogs that outlive the menu or the row that opened them. */

type Render = (close: () => void) => ReactNode;

let open: readonly { id: number; render: Render }[] = [];
let next = 0;
const listeners = new Set<() => void>();

export function openDialog(render: Render): void {
  open = [...open, { id: (next += 1), render }];
  listeners.forEach((listener) => listener());
}

function close(id: number): void {
  open = open.filter((dialog) => dialog.id !== id);
  listeners.forEach((listener) => listener());
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Where they appear; inside the router, so that they may contain links. */
export function DialogHost() {
  const dialogs = useSyncExternalStore(subscribe, () => open);
  return <>{dialogs.map(({ id, render }) => <Fragment key={id}>{render(() => close(id))}</Fragment>)}</>;
}
