import { Menu } from '@mantine/core';
import { IconPlayerPlay, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import type { VirtualMachineTemplate } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { objectAddress } from '@/app/address';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { QueryLink } from '@/parts/QueryLink';
import { idOf } from './template';

export function TemplateItems({ template }: { template: VirtualMachineTemplate }) {
  const canThere = useCan(template.metadata.namespace ?? '');
  const canHere = useCan(useDefaultNamespace());
  return (
    <>
      {canHere('create', kinds.machines) && (
        <Menu.Item component={QueryLink} to="/machines/new" query={{ from: 'template', template: idOf(template) }} leftSection={<IconPlayerPlay size={16} />}>{t('templates.launch')}</Menu.Item>
      )}
      {canThere('create', kinds.templateVersions) && (
        <Menu.Item component={Link} to={`${objectAddress('/templates', template)}/new-version`} leftSection={<IconPlus size={16} />}>{t('templates.newVersion')}</Menu.Item>
      )}
    </>
  );
}
