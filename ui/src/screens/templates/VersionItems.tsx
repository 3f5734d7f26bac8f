import { Menu } from '@mantine/core';
import { IconCopy, IconPlayerPlay, IconStar } from '@tabler/icons-react';
import type { VirtualMachineTemplate, VirtualMachineTemplateVersion } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { say, sayError } from '@/parts/notify';
import { QueryLink } from '@/parts/QueryLink';
import { setDefault } from './submit';
import { idOf, numberOf } from './template';

export function VersionItems({ version, template }: { version: VirtualMachineTemplateVersion; template: VirtualMachineTemplate | undefined }) {
  const canThere = useCan(version.metadata.namespace ?? '');
  const canHere = useCan(useDefaultNamespace());
  const { templateId } = version.spec;
  const isDefault = template?.spec.defaultVersionId === idOf(version);
  return (
    <>
      {canHere('create', kinds.machines) && (
        <Menu.Item component={QueryLink} to="/machines/new" query={{ from: 'template', template: templateId, version: idOf(version) }} leftSection={<IconPlayerPlay size={16} />}>{t('templates.launch')}</Menu.Item>
      )}
      {template && !isDefault && canThere('update', kinds.templates, template.metadata.name) && (
        <Menu.Item leftSection={<IconStar size={16} />} onClick={() => makeDefault(template, version)}>{t('templates.makeDefault')}</Menu.Item>
      )}
      {canThere('create', kinds.templateVersions) && (
        <Menu.Item component={QueryLink} to={`/templates/${templateId}/new-version`} query={{ based: version.metadata.name }} leftSection={<IconCopy size={16} />}>{t('templates.basedOn')}</Menu.Item>
      )}
    </>
  );
}

function makeDefault(template: VirtualMachineTemplate, version: VirtualMachineTemplateVersion): void {
  setDefault(template, version).then(
    () => say(t('templates.defaultSet', { version: numberOf(version), name: template.metadata.name })),
    (error: unknown) => sayError(template.metadata.name, error),
  );
}
