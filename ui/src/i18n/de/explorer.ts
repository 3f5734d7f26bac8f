import type { explorer as english } from '../en/explorer';
import type { TranslatedArea } from '../message';

export const explorer: TranslatedArea<typeof english> = {
  title: 'Alle Objekte',
  lead: 'Jede Art von Objekt, die der Server kennt, auch die ohne eigene Seite.',
  kinds: 'Arten',
  group: 'Gruppe',
  version: 'Version',
  scope: 'Gehört zu',
  namespaced: 'einem Namensraum',
  cluster: 'dem Cluster',
  create: 'Aus YAML anlegen',
  createTitle: 'Neu: {kind}',
  shortNames: 'Kurznamen',
};
