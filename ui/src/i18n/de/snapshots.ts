import type { snapshots as english } from '../en/snapshots';
import type { TranslatedArea } from '../message';

export const snapshots: TranslatedArea<typeof english> = {
  title: 'Schnappschüsse',
  ofMachines: 'Maschinen',
  ofVolumes: 'Volumes',
  newOfVolume: 'Schnappschuss eines Volumes',
  noVolumes: 'In diesem Namensraum gibt es kein Volume.',
  where: 'Aufgehoben',
  here: 'in diesem Cluster',
  inTarget: 'im Sicherungsziel',
  class: 'Schnappschussklasse',
  emptyVolumes: 'Keine Schnappschüsse von Volumes',
  emptyVolumesHelp: 'Ein Schnappschuss hebt ein Volume auf, wie es jetzt ist. Er kostet keine Zeit, und nur den Platz dessen, was sich danach ändert. Die von Maschinen bestehen aus solchen.',
  restore: 'Neues Volume daraus',
  restoreHelp: 'Ein weiteres Volume mit dem, was der Schnappschuss enthält. Blöcke werden geteilt, bis sich etwas ändert, daher dauert das nicht.',
  newVolume: 'Name des neuen Volumes',
  sameClass: 'Wie das Volume sie hatte',
  revert: 'Volume zurücksetzen',
  revertTitle: '{volume} zurücksetzen?',
  revertHelp: 'Das Volume wird an seiner Stelle, was es war: Was seitdem geschrieben wurde, ist verloren. Keine Maschine darf es dabei benutzen.',
  guest: 'Der Gast',
  guestOff: 'lief nicht',
  guestFrozen: 'brachte seine Dateisysteme zur Ruhe und stand {time} ms still',
  guestPaused: 'stand {time} ms still',
};
