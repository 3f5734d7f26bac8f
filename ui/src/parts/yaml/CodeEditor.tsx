import { autocompletion, closeBrackets, completionKeymap } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { bracketMatching, foldGutter, foldKeymap, indentOnInput } from '@codemirror/language';
import { unifiedMergeView } from '@codemirror/merge';
import { highlightSelectionMatches, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState, type Extension } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { useEffect, useRef } from 'react';
import type { SchemaSet } from '@/api/openapi';
import { completeFrom } from './completion';
import { editorTheme } from './theme';

interface CodeEditorProps {
  value: string;
  onChange?: (value: string) => void;
  label: string;
  /** Shows what differs from this text, line by line. */
  original?: string;
  schema?: SchemaSet | null;
  plain?: boolean;
}

/** CodeMirror in React's world. It is loaded only where somebody edits. */
export function CodeEditor({ value, onChange, label, original, schema, plain }: CodeEditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const completing = useRef(new Compartment());
  const locking = useRef(new Compartment());
  const changed = useRef(onChange);
  changed.current = onChange;

  useEffect(() => {
    if (!host.current) return;
    const extensions: Extension[] = [
      lineNumbers(),
      foldGutter(),
      history(),
      drawSelection(),
      indentOnInput(),
      bracketMatching(),
      closeBrackets(),
      highlightActiveLine(),
      highlightSelectionMatches(),
      // Tab leaves the editor, as everywhere on a page, after Escape.
      keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, ...foldKeymap, ...completionKeymap, indentWithTab]),
      completing.current.of([]),
      EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
      locking.current.of(EditorState.readOnly.of(!changed.current)),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) changed.current?.(update.state.doc.toString());
      }),
      editorTheme,
    ];
    if (!plain) extensions.push(yaml());
    if (original !== undefined) {
      extensions.push(unifiedMergeView({ original, mergeControls: false, collapseUnchanged: { margin: 3, minSize: 8 }, gutter: true }));
    }
    const editor = new EditorView({ parent: host.current, state: EditorState.create({ doc: value, extensions }) });
    view.current = editor;
    return () => {
      editor.destroy();
      view.current = null;
    };
    // The text is given to the editor once; later changes come through the effect below.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [label, original, plain]);

  useEffect(() => {
    const editor = view.current;
    if (!editor || editor.state.doc.toString() === value) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
  }, [value]);

  useEffect(() => {
    const extension = schema ? autocompletion({ override: [completeFrom(schema)], activateOnTyping: true }) : [];
    view.current?.dispatch({ effects: completing.current.reconfigure(extension) });
  }, [schema]);

  // Whether the user may change anything may be known only after the text is there.
  const readOnly = onChange === undefined;
  useEffect(() => {
    view.current?.dispatch({ effects: locking.current.reconfigure(EditorState.readOnly.of(readOnly)) });
  }, [readOnly]);

  return <div ref={host} style={{ height: '100%', minHeight: 0 }} />;
}
