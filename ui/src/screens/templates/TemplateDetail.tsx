import { Badge, Button, Group, Table, Tooltip } from '@mantine/core';
import { IconAlertTriangle, IconPlayerPlay, IconPlus, IconStack } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import type { VirtualMachineTemplate, VirtualMachineTemplateVersion } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { objectAddress } from '@/app/address';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { KindDetail } from '@/parts/kind/KindDetail';
import { ObjectMenu } from '@/parts/kind/ObjectMenu';
import { Card } from '@/parts/Page';
import { QueryLink } from '@/parts/QueryLink';
import { States } from '@/parts/States';
import { Time } from '@/parts/Time';
import { hardwareOf, idOf, numberOf, problemOf, versionsOf } from './template';
import { TemplateItems } from './TemplateItems';
import { VersionItems } from './VersionItems';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.templates}
      area="/templates"
      parent={t('templates.title')}
      facts={(template) => [
        [t('common.description'), template.spec.description],
        [t('templates.defaultVersion'), template.status?.defaultVersion],
        [t('templates.latestVersion'), template.status?.latestVersion],
      ]}
      body={(template) => <Versions template={template} />}
      actions={(template) => <LaunchButton template={template} />}
      menu={(template) => <TemplateItems template={template} />}
      deleteHelp={t('templates.deleteHelp')}
    />
  );
}

function LaunchButton({ template }: { template: VirtualMachineTemplate }) {
  const can = useCan(useDefaultNamespace());
  if (!can('create', kinds.machines)) return null;
  return <Button component={QueryLink} to="/machines/new" query={{ from: 'template', template: idOf(template) }} leftSection={<IconPlayerPlay size={17} />}>{t('templates.launch')}</Button>;
}

function Versions({ template }: { template: VirtualMachineTemplate }) {
  const { namespace = '' } = template.metadata;
  const can = useCan(namespace);
  const all = useCollection(kinds.templateVersions, { namespace });
  const versions = useMemo(() => versionsOf(template, all.items), [template, all.items]);
  const make = can('create', kinds.templateVersions) && <Button size="xs" variant="default" component={Link} to={`${objectAddress('/templates', template)}/new-version`} leftSection={<IconPlus size={14} />}>{t('templates.newVersion')}</Button>;
  return (
    <Card title={t('templates.versions')} actions={versions.length > 0 && make}>
      <States snapshot={{ ...all, items: versions }} empty={<Blank icon={IconStack} title={t('templates.noVersions')} text={t('templates.noVersionsHelp')}>{make}</Blank>}>
        <Table.ScrollContainer minWidth={640}>
          <Table verticalSpacing="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('templates.version')}</Table.Th>
                <Table.Th>{t('common.description')}</Table.Th>
                <Table.Th>{t('create.image')}</Table.Th>
                <Table.Th>{t('create.size')}</Table.Th>
                <Table.Th>{t('common.age')}</Table.Th>
                <Table.Th aria-label={t('common.actions')} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>{versions.map((version) => <VersionRow key={version.metadata.uid} version={version} template={template} />)}</Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </States>
    </Card>
  );
}

function VersionRow({ version, template }: { version: VirtualMachineTemplateVersion; template: VirtualMachineTemplate }) {
  const address = objectAddress('/template-versions', version);
  const isDefault = template.spec.defaultVersionId === idOf(version);
  const problem = problemOf(version);
  return (
    <Table.Tr>
      <Table.Td>
        <Group gap={8} wrap="nowrap">
          <Link to={address}>{numberOf(version) || version.metadata.name}</Link>
          {isDefault && <Badge size="xs" variant="light">{t('create.versionDefault')}</Badge>}
          {problem && <Tooltip label={problem}><IconAlertTriangle size={15} color="var(--croft-warn)" role="img" aria-label={problem} /></Tooltip>}
        </Group>
      </Table.Td>
      <Table.Td>{version.spec.description || '–'}</Table.Td>
      <Table.Td>{version.spec.imageId ? <Link to={`/images/${version.spec.imageId}`}>{version.spec.imageId}</Link> : '–'}</Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}>{hardwareOf(version)}</Table.Td>
      <Table.Td style={{ whiteSpace: 'nowrap' }}><Time at={version.metadata.creationTimestamp} /></Table.Td>
      <Table.Td align="right">
        <ObjectMenu kind={kinds.templateVersions} object={version} address={address} deleteHelp={t('templates.deleteVersionHelp')}>{() => <VersionItems version={version} template={template} />}</ObjectMenu>
      </Table.Td>
    </Table.Tr>
  );
}
