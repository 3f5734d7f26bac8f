import { Text } from '@mantine/core';
import { useState } from 'react';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { toYaml } from '@/parts/yaml/document';
import { YamlCreate } from '@/parts/yaml/YamlCreate';
import { build } from './build';
import { emptyForm, newDisk } from './form';

/** A machine in one's own words. */
export function YamlPage() {
  const namespace = useDefaultNamespace();
  const [starter] = useState(() => starterFor(namespace));
  return (
    <>
      <Text size="sm" c="dimmed" mb="sm">{t('create.yamlHelp')}</Text>
      <YamlCreate kind={kinds.machines} starter={starter} back="/machines" addressOf={(made) => objectAddress('/machines', made)} />
    </>
  );
}

function starterFor(namespace: string): string {
  const form = { ...emptyForm(namespace), name: 'new-machine', disks: [newDisk('container', { container: 'quay.io/containerdisks/debian:12' })] };
  return toYaml(build(form, () => undefined).machine);
}
