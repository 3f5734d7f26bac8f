import type { KubeObject } from '@/api/types';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { RowLink } from '../RowLink';
import type { Column } from '../table/columns';
import { Time } from '../Time';

/** Columns that every kind has. */

export function nameColumn<T extends KubeObject>(area: string, nameOf: (object: T) => string = (object) => object.metadata.name): Column<T> {
  return {
    id: 'name',
    title: t('common.name'),
    value: nameOf,
    cell: (object) => <RowLink to={objectAddress(area, object)}>{nameOf(object)}</RowLink>,
    width: 'minmax(180px, 2fr)',
    phone: true,
  };
}

export function namespaceColumn<T extends KubeObject>(): Column<T> {
  return { id: 'namespace', title: t('common.namespace'), value: (object) => object.metadata.namespace };
}

export function ageColumn<T extends KubeObject>(): Column<T> {
  return {
    id: 'age',
    title: t('common.age'),
    value: (object) => -Date.parse(object.metadata.creationTimestamp ?? ''),
    cell: (object) => <Time at={object.metadata.creationTimestamp} />,
    width: '124px',
    unsearched: true,
  };
}
