import type { Secret } from '@/api/core';
import type { KeyPair, VirtualMachineTemplate, VirtualMachineTemplateVersion } from '@/api/harvester';
import { apiVersionOf, kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import type { KubeObject } from '@/api/types';
import { language } from '@/i18n';
import { randomSuffix } from '@/parts/form/names';
import type { ClassOf } from '@/screens/machines/create/build';
import { build } from '@/screens/machines/create/build';
import type { MachineForm } from '@/screens/machines/create/form';
import { cpusOf, memoryOf } from '@/screens/machines/machine';

/** What templates and their versions say, in the words of the page. */

export function idOf({ metadata }: KubeObject): string {
  return `${metadata.namespace}/${metadata.name}`;
}

export function numberOf(version: VirtualMachineTemplateVersion): number {
  return version.status?.version ?? 0;
}

/** Newest first. */
export function versionsOf(template: KubeObject, all: readonly VirtualMachineTemplateVersion[]): VirtualMachineTemplateVersion[] {
  const id = idOf(template);
  return all.filter((version) => version.spec.templateId === id).sort((a, b) => numberOf(b) - numberOf(a));
}

/** Whether the images that it needs are there; nothing if it needs none. */
export function problemOf(version: VirtualMachineTemplateVersion): string | undefined {
  const condition = version.status?.conditions?.find((each) => each.type === 'ready' && each.status === 'False');
  return condition && (condition.message || condition.reason || 'not ready');
}

export function hardwareOf(version: VirtualMachineTemplateVersion): string {
  const spec = version.spec.vm?.spec;
  if (!spec) return '–';
  const machine = { metadata: { name: '' }, spec };
  return `${cpusOf(machine)} CPU · ${formatBytes(memoryOf(machine), language())}`;
}

export function templateObject(name: string, namespace: string, description: string): VirtualMachineTemplate {
  return { apiVersion: apiVersionOf(kinds.templates), kind: kinds.templates.kind, metadata: { name, namespace }, spec: { ...(description && { description }) } };
}

export interface BuiltVersion {
  version: VirtualMachineTemplateVersion;
  /** Its cloud-init, which every machine made of it gets a copy of. */
  secret: Secret | null;
}

interface VersionWords {
  template: string;
  namespace: string;
  description: string;
}

/** A version of what the form for machines says. Its name is new each time: there may be many, each with a Secret. */
export function versionFromForm(words: VersionWords, form: MachineForm, classOf: ClassOf, keyPairs: readonly KeyPair[], suffix: string): BuiltVersion {
  const { template, namespace, description } = words;
  const name = `${template.slice(0, 50)}-${suffix}`;
  const { machine, secret } = build({ ...form, name, namespace, start: true }, classOf);
  const image = form.disks.find((disk) => disk.image)?.image;
  const keys = keyPairs.filter((pair) => form.keys.includes(pair.spec.publicKey.trim())).map(idOf);
  return {
    version: {
      apiVersion: apiVersionOf(kinds.templateVersions),
      kind: kinds.templateVersions.kind,
      metadata: { name, namespace },
      spec: {
        templateId: `${namespace}/${template}`,
        ...(description && { description }),
        ...(image && { imageId: image }),
        ...(keys.length > 0 && { keyPairIds: keys }),
        vm: { metadata: { ...(machine.metadata.labels && { labels: machine.metadata.labels }), ...(machine.metadata.annotations && { annotations: machine.metadata.annotations }) }, spec: machine.spec },
      },
    },
    secret,
  };
}

/** The same again, to be changed: what the server made of the old one is left out. */
export function versionToEdit(version: VirtualMachineTemplateVersion): VirtualMachineTemplateVersion {
  const template = version.spec.templateId.split('/')[1] ?? version.metadata.name;
  return {
    apiVersion: apiVersionOf(kinds.templateVersions),
    kind: kinds.templateVersions.kind,
    metadata: { name: `${template.slice(0, 50)}-${randomSuffix()}`, ...(version.metadata.namespace && { namespace: version.metadata.namespace }) },
    spec: version.spec,
  };
}
