import type { Icon } from '@tabler/icons-react';
import { useCallback, type ReactNode } from 'react';
import { keyOf } from '@/api/collection';
import { useCollection } from '@/api/collections';
import type { Kind } from '@/api/kinds';
import type { KubeObject } from '@/api/types';
import { objectAddress } from '@/app/address';
import { useInNamespace } from '@/app/namespace';
import { forEachOf } from '../bulk';
import { Button } from '@mantine/core';
import { IconTrash } from '@tabler/icons-react';
import { deleteObject } from '@/api/client';
import { t } from '@/i18n';
import { Blank } from '../Blank';
import { ask } from '../confirm';
import { PageHead } from '../Page';
import type { Column, Facet } from '../table/columns';
import { DataTable } from '../table/DataTable';
import { ObjectMenu } from './ObjectMenu';
import { useMayDo } from './rights';

interface KindListProps<T extends KubeObject> {
  kind: Kind<T>;
  /** Where its screens are, as `/volumes`; also names the table. */
  area: string;
  title: string;
  icon: Icon;
  /** These must stay the same objects between renders. */
  columns: readonly Column<T>[];
  facets?: readonly Facet<T>[];
  /** What an empty list says. */
  emptyTitle?: string;
  emptyHelp?: string;
  create?: ReactNode;
  /** More entries for the menu of a row. */
  menu?: (object: T) => ReactNode;
  deleteHelp?: string;
  /** Only those; must stay the same function. */
  filter?: (object: T) => boolean;
  defaultSort?: { column: string; descending: boolean };
  /** Only what has these labels; asked of the server. */
  labelSelector?: string;
  /** Whatever namespace is chosen: they live in one of the system's own. */
  everywhere?: boolean;
  /** Between the title and the list. */
  below?: ReactNode;
}

/** The list of a kind as most areas have it. */
export function KindList<T extends KubeObject>(props: KindListProps<T>) {
  const { kind, area, title, icon, columns, facets, create, menu, deleteHelp, filter } = props;
  const snapshot = useCollection(kind, props.labelSelector ? { labelSelector: props.labelSelector } : {});
  const inNamespace = useInNamespace(snapshot.items);
  const visible = kind.namespaced && !props.everywhere ? inNamespace : snapshot.items;
  const rows = filter ? visible.filter(filter) : visible;
  const rowMenu = useCallback(
    (object: T) => <ObjectMenu kind={kind} object={object} address={objectAddress(kind.namespaced || !area.startsWith('/explorer') ? area : `${area}/_`, object)} {...(deleteHelp && { deleteHelp })}>{menu && (() => menu(object))}</ObjectMenu>,
    [kind, area, menu, deleteHelp],
  );
  return (
    <>
      <PageHead title={title} actions={create} />
      {props.below}
      <DataTable
        id={area.slice(1)}
        snapshot={{ ...snapshot, items: rows.length > 0 ? rows : snapshot.items.filter(filter ?? (() => true)) }}
        rows={rows}
        columns={columns}
        {...(facets && { facets })}
        keyOf={keyOf}
        nameOf={nameOf}
        defaultSort={props.defaultSort ?? { column: 'name', descending: false }}
        empty={<Blank icon={icon} title={props.emptyTitle ?? t('common.empty')} {...(props.emptyHelp && { text: props.emptyHelp })}>{create}</Blank>}
        bulk={(selected, clear) => <DeleteMany kind={kind} objects={selected} onDone={clear} {...(deleteHelp && { help: deleteHelp })} />}
        menu={rowMenu}
      />
    </>
  );
}

const nameOf = (object: KubeObject) => object.metadata.name;

function DeleteMany<T extends KubeObject>({ kind, objects, onDone, help }: { kind: Kind<T>; objects: readonly T[]; onDone: () => void; help?: string }) {
  const first = objects[0];
  const may = useMayDo('delete', kind, first ?? { metadata: { name: '' } });
  if (!may) return null;
  const remove = () =>
    ask({
      title: t('common.deleteMany', { count: objects.length }),
      body: help ?? t('common.deleteHelp'),
      confirm: t('common.delete'),
      dangerous: true,
      run: async () => {
        await forEachOf(t('common.delete'), objects, (object) => deleteObject(kind, object));
        onDone();
      },
    });
  return <Button size="xs" variant="default" c="red" leftSection={<IconTrash size={14} />} onClick={remove}>{t('common.delete')}</Button>;
}
