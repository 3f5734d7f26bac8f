import type { palette as english } from '../en/palette';
import type { TranslatedArea } from '../message';

export const palette: TranslatedArea<typeof english> = {
  screens: 'Gehe zu',
  actions: 'Tun',
  hint: 'Eine Maschine, eine Seite, eine Art, eine Aktion …',
};
