import { lazy, Suspense } from 'react';
import type { ComponentProps } from 'react';
import { Loading } from '../States';
import type { CodeEditor } from './CodeEditor';

const Editor = lazy(() => import('./CodeEditor').then((module) => ({ default: module.CodeEditor })));

/** The editor, loaded when it is first shown. */
export function LazyEditor(props: ComponentProps<typeof CodeEditor>) {
  return <Suspense fallback={<Loading />}><Editor {...props} /></Suspense>;
}
