import { createObject, deleteObject, mergePatch } from '@/api/client';
import type { VirtualMachineTemplate, VirtualMachineTemplateVersion } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import type { BuiltVersion } from './template';
import { idOf } from './template';

/** Makes a version and its Secret; a refusal leaves nothing behind. */
export async function createVersion({ version, secret }: BuiltVersion): Promise<VirtualMachineTemplateVersion> {
  if (secret) await createObject(kinds.secrets, secret);
  try {
    return await createObject(kinds.templateVersions, version);
  } catch (error) {
    if (secret) await deleteObject(kinds.secrets, secret).catch(() => undefined);
    throw error;
  }
}

/** Makes a template with its first version; without that one the template is of no use, and goes again. */
export async function createTemplate(template: VirtualMachineTemplate, built: BuiltVersion): Promise<void> {
  await createObject(kinds.templates, template);
  try {
    await createVersion(built);
  } catch (error) {
    await deleteObject(kinds.templates, template).catch(() => undefined);
    throw error;
  }
}

export function setDefault(template: VirtualMachineTemplate, version: VirtualMachineTemplateVersion): Promise<unknown> {
  return mergePatch(kinds.templates, template, { spec: { defaultVersionId: idOf(version) } });
}
