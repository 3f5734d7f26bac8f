import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from '@mantine/core';

/** One quiet green for what can be acted on; everything else is grey, and colour means state. */
const croft: MantineColorsTuple = [
  '#eef7f4', '#dcebe6', '#b7d7cc', '#8ec2b0', '#6cb098', '#55a488', '#338068', '#2b7a68', '#226757', '#164c40',
];

/** Greys with a trace of the same green, so that dark pages do not look blue. */
const dark: MantineColorsTuple = [
  '#d5dbd9', '#b3bcb9', '#8f9a96', '#6b7673', '#465250', '#303a38', '#252d2c', '#1b2221', '#151a1a', '#0f1413',
];

const gray: MantineColorsTuple = [
  '#f7f9f8', '#eff2f1', '#e4e9e7', '#d5dcd9', '#bcc5c2', '#96a19d', '#6f7a77', '#4c5754', '#333c3a', '#1e2524',
];

export const theme = createTheme({
  primaryColor: 'croft',
  primaryShade: { light: 7, dark: 6 },
  colors: { croft, dark, gray },
  defaultRadius: 'md',
  fontFamily: "'Inter Variable', system-ui, -apple-system, 'Segoe UI', sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SFMono-Regular', 'JetBrains Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
  headings: { fontWeight: '620' },
  cursorType: 'pointer',
  respectReducedMotion: true,
  components: {
    Modal: { defaultProps: { centered: true, radius: 'lg', overlayProps: { backgroundOpacity: 0.45, blur: 2 } } },
    Menu: { defaultProps: { shadow: 'md', position: 'bottom-end' } },
    Tooltip: { defaultProps: { openDelay: 350, withArrow: true } },
    Paper: { defaultProps: { radius: 'lg' } },
  },
});

export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    '--croft-page': '#f5f7f6',
    '--croft-surface': '#ffffff',
    '--croft-raised': '#ffffff',
    '--croft-line': '#e3e8e6',
    '--croft-quiet': '#5f6b68',
    '--croft-hover': '#f0f4f2',
    '--croft-ok': '#1f7d59',
    '--croft-busy': '#2b6cb0',
    '--croft-warn': '#a05a00',
    '--croft-bad': '#c0362c',
    '--croft-idle': '#66726f',
    '--mantine-color-body': '#ffffff',
    '--mantine-color-text': '#1d2523',
    '--mantine-color-default-border': '#d3dbd8',
    '--mantine-color-dimmed': '#5f6b68',
    '--mantine-color-error': '#c0362c',
  },
  dark: {
    '--croft-page': '#121716',
    '--croft-surface': '#191f1e',
    '--croft-raised': '#1f2625',
    '--croft-line': '#2a3331',
    '--croft-quiet': '#9aa6a2',
    '--croft-hover': '#222a28',
    '--croft-ok': '#5cc39a',
    '--croft-busy': '#6fb1ef',
    '--croft-warn': '#e5a84b',
    '--croft-bad': '#ef7c72',
    '--croft-idle': '#8b9794',
    '--mantine-color-body': '#191f1e',
    '--mantine-color-text': '#dde4e1',
    '--mantine-color-default': '#1f2625',
    '--mantine-color-default-border': '#36413e',
    '--mantine-color-dimmed': '#9aa6a2',
    '--mantine-color-error': '#ef7c72',
  },
});
