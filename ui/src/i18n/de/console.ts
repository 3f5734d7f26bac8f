import type { console as english } from '../en/console';
import type { TranslatedArea } from '../message';

export const console: TranslatedArea<typeof english> = {
  connecting: 'Verbinde',
  connected: 'Verbunden',
  ended: 'Getrennt',
  endedHelp: 'Die Konsole wurde getrennt.',
  reconnect: 'Neu verbinden',
  paste: 'Einfügen',
  pasteText: 'Text',
  pasteHelp: 'Er wird dem Gast Taste für Taste eingegeben, wie auf einer amerikanischen Tastatur.',
  type: 'Eintippen',
  fit: 'Ins Fenster einpassen',
  realSize: 'Echte Größe',
  fullScreen: 'Vollbild',
  window: 'Vollbild verlassen',
  serialHint: 'Eingabetaste drücken für eine Eingabezeile.',
  notRunning: 'Die Maschine läuft nicht',
  notRunningHelp: 'Ihre Konsolen sind da, sobald sie läuft.',
};
