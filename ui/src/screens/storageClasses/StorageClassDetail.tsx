import { Badge, Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useCollection } from '@/api/collections';
import type { StorageClass } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { formatBytes, parseQuantity } from '@/api/quantity';
import { language, t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { ClassItems } from './ClassItems';
import { imageOf, isDefault, isReserved } from './storageClass';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.storageClasses}
      area="/storage-classes"
      parent={t('storageClasses.title')}
      meta={(storageClass) => isDefault(storageClass) && <Badge variant="light">{t('storageClasses.default')}</Badge>}
      facts={(storageClass) => [
        [t('common.description'), storageClass.metadata.annotations?.['field.cattle.io/description']],
        [t('storageClasses.image'), imageOf(storageClass) && <Link key="image" to={`/images/${imageOf(storageClass)}`}>{imageOf(storageClass)}</Link>],
        [t('storageClasses.provisioner'), storageClass.provisioner],
        [t('storageClasses.reclaim'), t(storageClass.reclaimPolicy === 'Retain' ? 'storageClasses.retain' : 'storageClasses.delete')],
        [t('storageClasses.binding'), t(storageClass.volumeBindingMode === 'WaitForFirstConsumer' ? 'storageClasses.waiting' : 'storageClasses.immediate')],
        [t('storageClasses.expansion'), t(storageClass.allowVolumeExpansion ? 'common.yes' : 'common.no')],
        [t('storageClasses.reserved'), isReserved(storageClass) && t('common.yes')],
      ]}
      body={(storageClass) => <><Parameters storageClass={storageClass} /><Volumes name={storageClass.metadata.name} /></>}
      menu={(storageClass) => <ClassItems storageClass={storageClass} />}
      deleteHelp={t('storageClasses.deleteHelp')}
    />
  );
}

function Parameters({ storageClass }: { storageClass: StorageClass }) {
  const parameters = Object.entries(storageClass.parameters ?? {});
  if (parameters.length === 0) return null;
  return (
    <Card title={t('storageClasses.parameters')}>
      <Table>
        <Table.Tbody>
          {parameters.map(([name, value]) => <Table.Tr key={name}><Table.Td fw={560} w={220}>{name}</Table.Td><Table.Td style={{ overflowWrap: 'anywhere' }}>{value}</Table.Td></Table.Tr>)}
        </Table.Tbody>
      </Table>
      <Text size="sm" c="dimmed" mt="xs">{t('storageClasses.parametersHelp')}</Text>
    </Card>
  );
}

const shown = 50;

function Volumes({ name }: { name: string }) {
  const may = useMay('list', kinds.volumes);
  const all = useCollection(may ? kinds.volumes : null).items;
  const volumes = all.filter((volume) => volume.spec?.storageClassName === name);
  if (!may) return null;
  return (
    <Card title={t('storageClasses.volumes', { count: volumes.length })}>
      {volumes.length === 0 ? (
        <Text size="sm" c="dimmed">{t('common.none')}</Text>
      ) : (
        <Table.ScrollContainer minWidth={420}>
          <Table>
            <Table.Tbody>
              {volumes.slice(0, shown).map(({ metadata, status, spec }) => (
                <Table.Tr key={metadata.uid}>
                  <Table.Td><Link to={`/volumes/${metadata.namespace}/${metadata.name}`}>{metadata.namespace}/{metadata.name}</Link></Table.Td>
                  <Table.Td align="right">{formatBytes(parseQuantity(status?.capacity?.storage ?? spec?.resources?.requests?.storage), language())}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Card>
  );
}
