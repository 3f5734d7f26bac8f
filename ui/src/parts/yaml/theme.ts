import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { EditorView } from '@codemirror/view';
import { tags } from '@lezer/highlight';

/** The editor in the page's own colours, which follow light and dark by themselves. */
export const editorTheme = [
  EditorView.theme({
    '&': { fontSize: '13px', backgroundColor: 'transparent', height: '100%' },
    '&.cm-focused': { outline: 'none' },
    '.cm-scroller': { fontFamily: 'var(--mantine-font-family-monospace)', lineHeight: '1.55' },
    '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--croft-idle)', border: 'none' },
    '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--croft-hover) 70%, transparent)' },
    '.cm-cursor': { borderLeftColor: 'var(--mantine-color-text)' },
    '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'color-mix(in srgb, var(--mantine-primary-color-filled) 28%, transparent)' },
    '.cm-tooltip': { backgroundColor: 'var(--croft-raised)', border: '1px solid var(--croft-line)', borderRadius: '8px', overflow: 'hidden' },
    '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--mantine-primary-color-filled)', color: '#fff' },
    '.cm-completionInfo': { maxWidth: '360px', padding: '8px 10px' },
    '.cm-panels': { backgroundColor: 'var(--croft-raised)', color: 'inherit' },
    '.cm-deletedChunk': { backgroundColor: 'color-mix(in srgb, var(--croft-bad) 12%, transparent)' },
    '.cm-changedLine, .cm-inlineChangedLine': { backgroundColor: 'color-mix(in srgb, var(--croft-ok) 12%, transparent) !important' },
    '.cm-changedText': { background: 'color-mix(in srgb, var(--croft-ok) 26%, transparent) !important' },
    '.cm-deletedChunk .cm-deletedText': { background: 'color-mix(in srgb, var(--croft-bad) 26%, transparent)' },
    '.cm-collapsedLines': { backgroundColor: 'var(--croft-hover)', color: 'var(--croft-quiet)', backgroundImage: 'none' },
  }),
  syntaxHighlighting(
    HighlightStyle.define([
      { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--mantine-color-anchor)' },
      { tag: [tags.string, tags.special(tags.string)], color: 'var(--mantine-color-text)' },
      { tag: [tags.number, tags.bool, tags.null], color: 'var(--croft-busy)' },
      { tag: tags.comment, color: 'var(--croft-quiet)', fontStyle: 'italic' },
      { tag: [tags.punctuation, tags.separator], color: 'var(--croft-idle)' },
    ]),
  ),
];
