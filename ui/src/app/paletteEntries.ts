import type { Icon } from '@tabler/icons-react';
import { IconBox, IconDatabase, IconDeviceDesktop, IconPhoto, IconPlus, IconTerminal2 } from '@tabler/icons-react';
import type { DiscoveredKind } from '@/api/discovery';
import type { KubeObject } from '@/api/types';
import type { VirtualMachine } from '@/api/kubevirt';
import type { VirtualMachineImage } from '@/api/harvester';
import { t } from '@/i18n';
import type { Area } from './areas';

/** Something that the palette can lead to or do. */
export interface Entry {
  id: string;
  label: string;
  detail: string;
  group: string;
  icon: Icon;
  to?: string;
  run?: () => void;
}

export interface Sources {
  areas: readonly Area[];
  machines: readonly VirtualMachine[];
  volumes: readonly KubeObject[];
  images: readonly VirtualMachineImage[];
  nodes: readonly KubeObject[];
  kinds: readonly DiscoveredKind[];
  actions: readonly Entry[];
}

/** Everything that can be found, in the order of the groups. */
export function allEntries({ areas, machines, volumes, images, nodes, kinds, actions }: Sources): Entry[] {
  const path = ({ metadata }: KubeObject) => `${metadata.namespace}/${metadata.name}`;
  return [
    ...areas.map((area) => ({ id: `area ${area.id}`, label: t(area.title), detail: '', group: t('palette.screens'), icon: area.icon, to: area.path })),
    { id: 'new machine', label: t('machines.create'), detail: '', group: t('palette.actions'), icon: IconPlus, to: '/machines/new' },
    { id: 'new image', label: t('images.add'), detail: '', group: t('palette.actions'), icon: IconPlus, to: '/images/new' },
    ...actions,
    ...machines.map((machine) => ({ id: `machine ${path(machine)}`, label: machine.metadata.name, detail: machine.metadata.namespace ?? '', group: t('machines.title'), icon: IconDeviceDesktop, to: `/machines/${path(machine)}` })),
    ...machines
      .filter((machine) => machine.status?.printableStatus === 'Running')
      .map((machine) => ({ id: `console ${path(machine)}`, label: `${t('machines.console')}: ${machine.metadata.name}`, detail: machine.metadata.namespace ?? '', group: t('palette.actions'), icon: IconTerminal2, to: `/machines/${path(machine)}/console` })),
    ...images.map((image) => ({ id: `image ${path(image)}`, label: image.spec.displayName, detail: image.metadata.namespace ?? '', group: t('images.title'), icon: IconPhoto, to: `/images/${path(image)}` })),
    ...volumes.map((volume) => ({ id: `volume ${path(volume)}`, label: volume.metadata.name, detail: volume.metadata.namespace ?? '', group: t('volumes.title'), icon: IconDatabase, to: `/volumes/${path(volume)}` })),
    ...nodes.map((node) => ({ id: `node ${node.metadata.name}`, label: node.metadata.name, detail: '', group: t('hosts.title'), icon: IconBox, to: `/hosts/${node.metadata.name}` })),
    ...kinds.map((kind) => ({ id: `kind ${kind.group}/${kind.plural}`, label: kind.kind, detail: kind.group || 'core', group: t('explorer.kinds'), icon: IconBox, to: `/explorer/${kind.group || 'core'}/${kind.plural}` })),
  ];
}

const most = 40;

/** Every word must be found; what begins with the first word comes first. */
export function matching(entries: readonly Entry[], query: string): Entry[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const [first] = words;
  if (first === undefined) return entries.filter((entry) => entry.id.startsWith('area ') || entry.id.startsWith('new ') || entry.id.startsWith('do ')).slice(0, most);
  const found = entries.filter((entry) => {
    const text = `${entry.label} ${entry.detail} ${entry.group}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const starts = (entry: Entry) => Number(!entry.label.toLowerCase().startsWith(first));
  return found.sort((a, b) => starts(a) - starts(b)).slice(0, most);
}
