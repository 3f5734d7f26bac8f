import { Anchor, Button, List, SimpleGrid, Stack, Table, Text } from '@mantine/core';
import { IconExternalLink, IconFileDownload } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { request } from '@/api/client';
import { useCollection, useObject } from '@/api/collections';
import { asApiError } from '@/api/errors';
import { kinds } from '@/api/kinds';
import { downloadKubeconfig } from '@/app/kubeconfig';
import { t } from '@/i18n';
import { Facts } from '@/parts/Facts';
import { CopyableCode } from '@/parts/form/Preview';
import { say, sayError } from '@/parts/notify';
import { Card, PageHead } from '@/parts/Page';
import { Failure, Loading } from '@/parts/States';
import { effectiveValue } from '@/screens/settings/value';
import { croftVersion, kubernetesVersion } from './versions';

interface Version {
  gitVersion: string;
  platform: string;
}

const links = [
  { label: 'about.linkHarvester', to: 'https://docs.harvesterhci.io' },
  { label: 'about.linkKubevirt', to: 'https://kubevirt.io/user-guide/' },
  { label: 'about.linkKubectl', to: 'https://kubernetes.io/docs/reference/kubectl/' },
] as const;

export function Screen() {
  const version = useQuery({ queryKey: ['version'], queryFn: () => request<Version>('GET', '/version') });
  const harvester = useObject(kinds.settings, undefined, 'server-version').object;
  const kubeconfig = () =>
    downloadKubeconfig().then(
      () => say(t('app.kubeconfigDone')),
      (error: unknown) => sayError(t('app.downloadKubeconfig'), error),
    );
  return (
    <>
      <PageHead title={t('about.title')} />
      {version.error && <Failure error={asApiError(version.error)} retry={() => void version.refetch()} />}
      {version.isPending && <Loading />}
      {version.data && (
        <Stack>
          <SimpleGrid cols={{ base: 1, md: 2 }}>
            <Card title="Croft">
              <Facts
                facts={[
                  [t('about.version'), croftVersion(version.data.gitVersion)],
                  [t('about.platform'), version.data.platform],
                  [t('about.kubernetes'), kubernetesVersion(version.data.gitVersion)],
                  [t('about.harvester'), harvester && effectiveValue(harvester)],
                  [t('about.licence'), 'Apache License 2.0'],
                ]}
              />
            </Card>
            <Card title={t('about.api')}>
              <Text size="sm" c="dimmed" mb="sm">{t('about.apiHelp')}</Text>
              <CopyableCode text={window.location.origin} />
              <Button mt="md" leftSection={<IconFileDownload size={17} />} onClick={() => void kubeconfig()}>{t('app.downloadKubeconfig')}</Button>
              <List size="sm" mt="md" spacing={4} fz="sm">
                <List.Item><Anchor size="sm" href="/openapi/v2" target="_blank">{t('about.linkOpenApi')}</Anchor></List.Item>
                <List.Item><Anchor size="sm" href="/v1/harvester/schemas" target="_blank">{t('about.linkSchemas')}</Anchor></List.Item>
              </List>
            </Card>
          </SimpleGrid>
          <HostVersions />
          <Card title={t('about.documentation')}>
            <Text size="sm" c="dimmed" mb="sm">{t('about.documentationHelp')}</Text>
            <List size="sm" spacing={4}>
              {links.map(({ label, to }) => <List.Item key={to}><Anchor size="sm" href={to} target="_blank" rel="noopener noreferrer">{t(label)} <IconExternalLink size={13} aria-hidden /></Anchor></List.Item>)}
            </List>
          </Card>
        </Stack>
      )}
    </>
  );
}

/** What runs on each host; for those who may see hosts. */
function HostVersions() {
  const { items } = useCollection(kinds.nodes);
  if (items.length === 0) return null;
  return (
    <Card title={t('about.hosts')}>
      <Table.ScrollContainer minWidth={520}>
        <Table>
          <Table.Thead>
            <Table.Tr><Table.Th>{t('common.name')}</Table.Th><Table.Th>Croft</Table.Th><Table.Th>{t('about.system')}</Table.Th><Table.Th>{t('about.kernel')}</Table.Th></Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {items.map((node) => {
              const info = node.status?.nodeInfo ?? {};
              return (
                <Table.Tr key={node.metadata.uid}>
                  <Table.Td fw={560}>{node.metadata.name}</Table.Td>
                  <Table.Td>{croftVersion(info['kubeletVersion'] ?? '')}</Table.Td>
                  <Table.Td>{info['osImage']}</Table.Td>
                  <Table.Td>{info['kernelVersion']}</Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}
