import type { charts as english } from '../en/charts';
import type { TranslatedArea } from '../message';

export const charts: TranslatedArea<typeof english> = {
  title: 'Auslastung',
  cpu: 'CPU',
  memory: 'Arbeitsspeicher',
  guestMemory: 'Vom Gast benutzt',
  disk: 'Platten',
  network: 'Netz',
  storage: 'Speicher',
  read: 'Gelesen',
  write: 'Geschrieben',
  received: 'Empfangen',
  sent: 'Gesendet',
  tenMinutes: '10 Minuten',
  day: '24 Stunden',
  empty: 'Die ersten Werte kommen in ein paar Sekunden.',
  unavailable: 'Es gibt keine Werte: {message}',
};
