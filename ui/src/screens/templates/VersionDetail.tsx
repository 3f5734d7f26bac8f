import { Alert, Badge, List } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useObject } from '@/api/collections';
import type { VirtualMachineTemplateVersion } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { claimTemplatesOf } from '@/screens/machines/machine';
import { hardwareOf, idOf, numberOf, problemOf } from './template';
import { VersionItems } from './VersionItems';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.templateVersions}
      area="/template-versions"
      parent={t('templates.title')}
      parentTo={(version) => `/templates/${version.spec.templateId}`}
      titleOf={(version) => t('templates.versionTitle', { template: version.spec.templateId.split('/')[1] ?? '', version: numberOf(version) })}
      meta={(version) => <DefaultBadge version={version} />}
      facts={(version) => [
        [t('templates.one'), <Link key="template" to={`/templates/${version.spec.templateId}`}>{version.spec.templateId}</Link>],
        [t('common.description'), version.spec.description],
        [t('create.image'), version.spec.imageId && <Link key="image" to={`/images/${version.spec.imageId}`}>{version.spec.imageId}</Link>],
        [t('create.size'), hardwareOf(version)],
        [t('create.keys'), version.spec.keyPairIds?.map((id) => <div key={id}><Link to={`/keys/${id}`}>{id}</Link></div>)],
        [t('create.networks'), (version.spec.vm?.spec.template.spec.networks ?? []).map((network) => network.multus?.networkName ?? t('detail.defaultNetwork')).join(', ')],
      ]}
      body={(version) => <Body version={version} />}
      menu={(version) => <Items version={version} />}
      deleteHelp={t('templates.deleteVersionHelp')}
    />
  );
}

function useTemplate(version: VirtualMachineTemplateVersion) {
  const [namespace, name = ''] = version.spec.templateId.split('/');
  return useObject(kinds.templates, namespace, name).object;
}

function DefaultBadge({ version }: { version: VirtualMachineTemplateVersion }) {
  const template = useTemplate(version);
  return template?.spec.defaultVersionId === idOf(version) ? <Badge variant="light">{t('create.versionDefault')}</Badge> : null;
}

function Items({ version }: { version: VirtualMachineTemplateVersion }) {
  return <VersionItems version={version} template={useTemplate(version)} />;
}

function Body({ version }: { version: VirtualMachineTemplateVersion }) {
  const problem = problemOf(version);
  const claims = version.spec.vm ? claimTemplatesOf(version.spec.vm) : [];
  return (
    <>
      {problem && <Alert color="yellow" title={t('templates.notReady')}>{problem}</Alert>}
      {claims.length > 0 && (
        <Card title={t('detail.disks')}>
          <List size="sm">
            {claims.map(({ metadata, spec }) => (
              <List.Item key={metadata.name}>{metadata.name}: {spec?.resources?.requests?.storage} {metadata.annotations?.['harvesterhci.io/imageId'] || (metadata.annotations?.['harvesterhci.io/imageId'] === '' && t('templates.imageOpen'))}</List.Item>
            ))}
          </List>
        </Card>
      )}
    </>
  );
}
