export const palette = {
  screens: 'Go to',
  actions: 'Do',
  hint: 'A machine, a screen, a kind, an action …',
} as const;
