import { createObject, deleteObject } from '@/api/client';
import { kinds } from '@/api/kinds';
import type { Built } from './build';

/**
 * Makes the machine and its Secret. The server is asked first whether it would take the machine, so that a refusal
 * leaves nothing behind.
 */
export async function submit({ machine, secret }: Built): Promise<void> {
  await createObject(kinds.machines, machine, true);
  if (!secret) {
    await createObject(kinds.machines, machine);
    return;
  }
  await createObject(kinds.secrets, secret);
  try {
    await createObject(kinds.machines, machine);
  } catch (error) {
    await deleteObject(kinds.secrets, secret).catch(() => undefined);
    throw error;
  }
}

/** The same by the croft command, as far as that has options for it. */
export function commandOf({ machine }: Built, image: string, size: string): string {
  const { domain } = machine.spec.template.spec;
  const parts = [
    `croft vm create ${machine.metadata.name}`,
    `-n ${machine.metadata.namespace}`,
    image && `--image ${image}`,
    `--cpus ${domain.resources?.limits?.['cpu']}`,
    `--memory ${domain.resources?.limits?.['memory']}`,
    size && `--disk ${size}`,
    domain.firmware?.bootloader?.efi && (domain.firmware.bootloader.efi.secureBoot ? '--secure-boot' : '--uefi'),
    domain.devices.tpm && '--tpm',
    machine.spec.runStrategy === 'Halted' && '--no-start',
  ];
  return parts.filter(Boolean).join(' ');
}
