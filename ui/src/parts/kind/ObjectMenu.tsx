import { Menu } from '@mantine/core';
import { IconCode, IconTrash } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { deleteObject } from '@/api/client';
import type { Kind } from '@/api/kinds';
import type { KubeObject } from '@/api/types';
import { t } from '@/i18n';
import { ask } from '../confirm';
import { LazyMenu } from '../LazyMenu';
import { say } from '../notify';
import { useMayDo } from './rights';

interface ObjectMenuProps<T extends KubeObject> {
  kind: Kind<T>;
  object: T;
  /** The address of its detail. */
  address: string;
  /** How it is called on the page; its name if nothing is said. */
  label?: string;
  /** What is lost with it. */
  deleteHelp?: string;
  /** What else can be done; made when the menu is opened. */
  children?: () => ReactNode;
  large?: boolean;
}

/** What can be done with an object of any kind. */
export function ObjectMenu<T extends KubeObject>(props: ObjectMenuProps<T>) {
  const name = props.label ?? props.object.metadata.name;
  return <LazyMenu label={t('common.actionsFor', { name })} large={props.large ?? false}>{() => <Content {...props} />}</LazyMenu>;
}

function Content<T extends KubeObject>({ kind, object, address, label, deleteHelp, children }: ObjectMenuProps<T>) {
  const mayDelete = useMayDo('delete', kind, object);
  const name = label ?? object.metadata.name;
  const remove = () =>
    ask({
      title: t('common.deleteTitle', { name }),
      body: deleteHelp ?? t('common.deleteHelp'),
      confirm: t('common.delete'),
      dangerous: true,
      run: async () => {
        await deleteObject(kind, object);
        say(t('common.actionDone', { action: t('common.delete'), name }));
      },
    });
  return (
    <>
      {children?.()}
      <Menu.Item component={Link} to={`${address}/yaml`} leftSection={<IconCode size={16} />}>{t('common.yaml')}</Menu.Item>
      {mayDelete && (
        <>
          <Menu.Divider />
          <Menu.Item c="red" leftSection={<IconTrash size={16} />} onClick={remove}>{t('common.delete')}</Menu.Item>
        </>
      )}
    </>
  );
}
