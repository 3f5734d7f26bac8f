import type { keys as english } from '../en/keys';
import type { TranslatedArea } from '../message';

export const keys: TranslatedArea<typeof english> = {
  title: 'SSH-Schlüssel',
  add: 'Schlüssel hinzufügen',
  addTitle: 'SSH-Schlüssel hinzufügen',
  publicKey: 'Öffentlicher Schlüssel',
  pasteHelp: 'Die Zeile in ~/.ssh/id_ed25519.pub oder einer ähnlichen Datei.',
  fromFile: 'Datei lesen',
  badKey: 'Das sieht nicht nach einem öffentlichen Schlüssel aus. Er beginnt mit seiner Art, etwa ssh-ed25519.',
  isPrivate: 'Das ist ein privater Schlüssel: Behalten Sie ihn für sich. Der öffentliche steht in der Datei, die auf .pub endet.',
  generate: 'Schlüssel erzeugen',
  generateTitle: 'SSH-Schlüssel erzeugen',
  generateHelp: 'Der Server macht einen neuen Schlüssel (RSA), behält die öffentliche Hälfte und gibt Ihnen die private als Datei.',
  generateOnce: 'Der private Schlüssel wird jetzt vom Browser gespeichert und nirgends sonst aufgehoben.',
  generated: 'Der private Schlüssel ist als {file} gespeichert',
  generateFailed: 'Der Server hat einen Schlüssel gemacht, aber die private Hälfte nicht herausgegeben. Der Schlüssel wurde wieder gelöscht.',
  comment: 'Kommentar',
  fingerprint: 'Fingerabdruck (MD5)',
  valid: 'Gültig',
  invalid: 'Ungültig',
  checking: 'Wird geprüft',
  emptyTitle: 'Noch keine SSH-Schlüssel',
  emptyHelp: 'Ein hinterlegter Schlüssel kann für jede neue Maschine gewählt werden und lässt seinen Besitzer ohne Kennwort hinein.',
  deleteHelp: 'Er kann für neue Maschinen nicht mehr gewählt werden. Gäste, die ihn schon haben, behalten ihn.',
};
