import type { forms as english } from '../en/forms';
import type { TranslatedArea } from '../message';

export const forms: TranslatedArea<typeof english> = {
  badName: 'Kleinbuchstaben, Ziffern und Striche; am Anfang und am Ende ein Buchstabe oder eine Ziffer.',
  cron: 'Wann',
  cronHelp: 'Minute, Stunde, Tag, Monat, Wochentag, in UTC.',
  cronHourly: 'Jede Stunde',
  cronDaily: 'Täglich um 2:00',
  cronWeekly: 'Sonntags um 3:00',
  cronMonthly: 'Am Ersten jedes Monats',
  cronOwn: 'Etwas anderes',
  retain: 'Aufheben',
  retainHelp: 'So viele bleiben; ältere werden gelöscht.',
  maxFailure: 'Aufgeben nach',
  maxFailureHelp: 'Fehlschlägen nacheinander; dann ruht der Zeitplan.',
  scheduleName: 'Name',
  snapshotOrBackup: 'Was entsteht',
  asSnapshot: 'Schnappschüsse, in diesem Cluster',
  asBackup: 'Sicherungen, auf dem Sicherungsziel',
};
