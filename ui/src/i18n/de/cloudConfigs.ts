import type { cloudConfigs as english } from '../en/cloudConfigs';
import type { TranslatedArea } from '../message';

export const cloudConfigs: TranslatedArea<typeof english> = {
  title: 'Cloud-Configs',
  create: 'Neue Cloud-Config',
  user: 'Benutzerdaten',
  userHelp: 'Was der Gast beim ersten Start tut: Benutzer, Pakete, Dateien, Befehle.',
  network: 'Netzdaten',
  networkHelp: 'Wie der Gast sein Netz einrichtet.',
  content: 'Inhalt',
  lines: 'Zeilen',
  emptyTitle: 'Noch keine Cloud-Configs',
  emptyHelp: 'Eine hinterlegte Cloud-Config kann beim Anlegen einer Maschine gewählt werden, statt dasselbe noch einmal zu schreiben.',
  deleteHelp: 'Sie kann für neue Maschinen nicht mehr gewählt werden. Maschinen, die mit ihr entstanden sind, behalten ihre Abschrift.',
};
