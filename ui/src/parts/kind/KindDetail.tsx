import { Group, SimpleGrid, Stack, Tabs } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useObject } from '@/api/collections';
import type { Kind } from '@/api/kinds';
import type { Condition, KubeObject } from '@/api/types';
import { isRecord } from '@/api/types';
import { objectAddress, useAddress } from '@/app/address';
import { t } from '@/i18n';
import { Conditions } from '../Conditions';
import { EventsOf } from '../EventList';
import type { Fact } from '../Facts';
import { Facts } from '../Facts';
import { LabelsCard } from '../LabelsCard';
import { Card, PageHead } from '../Page';
import { ObjectStates } from '../States';
import { Time } from '../Time';
import { YamlTab } from '../yaml/YamlTab';
import { ObjectMenu } from './ObjectMenu';
import { useMayDo } from './rights';

export interface ExtraTab<T> {
  id: string;
  label: string;
  content: (object: T) => ReactNode;
}

interface KindDetailProps<T extends KubeObject> {
  kind: Kind<T>;
  area: string;
  parent: string;
  /** Where the parent is, if that is not the area. */
  parentTo?: (object: T) => string;
  /** Where the list is, if not at the area itself. */
  listAddress?: string;
  titleOf?: (object: T) => string;
  meta?: (object: T) => ReactNode;
  facts?: (object: T) => readonly Fact[];
  /** Below the facts. */
  body?: (object: T) => ReactNode;
  tabs?: readonly ExtraTab<T>[];
  actions?: (object: T) => ReactNode;
  menu?: (object: T) => ReactNode;
  deleteHelp?: string;
}

/** One object as most areas show it: facts, labels, conditions, events, YAML. */
export function KindDetail<T extends KubeObject>(props: KindDetailProps<T>) {
  const { namespace, name = '', tab = 'overview' } = useAddress();
  const { snapshot } = useObject(props.kind, namespace === '_' ? undefined : namespace, name);
  return <ObjectStates snapshot={snapshot} name={name}>{(object) => <Detail {...props} object={object} tab={tab} />}</ObjectStates>;
}

function Detail<T extends KubeObject>({ object, tab, ...props }: KindDetailProps<T> & { object: T; tab: string }) {
  const { kind, area, parent, tabs = none } = props;
  const navigate = useNavigate();
  const base = objectAddress(area, object);
  const title = props.titleOf?.(object) ?? object.metadata.name;
  const ids = ['overview', ...tabs.map((each) => each.id), ...(kind.namespaced ? ['events'] : []), 'yaml'];
  const labels: Record<string, string> = { overview: t('common.overview'), events: t('common.events'), yaml: t('common.yaml'), ...Object.fromEntries(tabs.map((each) => [each.id, each.label])) };
  const current = ids.includes(tab) ? tab : 'overview';
  return (
    <>
      <PageHead
        title={title}
        parent={{ title: parent, to: props.listAddress ?? area }}
        meta={<>{props.meta?.(object)}{object.metadata.namespace && <span>{object.metadata.namespace}</span>}</>}
        actions={<Group gap="xs">{props.actions?.(object)}<ObjectMenu large kind={kind} object={object} address={base} label={title} {...(props.deleteHelp && { deleteHelp: props.deleteHelp })}>{props.menu && (() => props.menu?.(object))}</ObjectMenu></Group>}
      />
      <Tabs value={current} onChange={(value) => void navigate({ to: value === 'overview' ? base : `${base}/${value}` })} mb="md">
        <Tabs.List style={{ flexWrap: 'nowrap', overflowX: 'auto', overflowY: 'hidden' }}>
          {ids.map((id) => <Tabs.Tab key={id} value={id} style={{ flex: 'none' }}>{labels[id]}</Tabs.Tab>)}
        </Tabs.List>
      </Tabs>
      {current === 'overview' && <Overview {...props} object={object} />}
      {current === 'events' && <EventsOf namespace={object.metadata.namespace ?? ''} name={object.metadata.name} />}
      {current === 'yaml' && <YamlTab kind={kind} object={object} />}
      {tabs.find((each) => each.id === current)?.content(object)}
    </>
  );
}

const none: readonly never[] = [];

function Overview<T extends KubeObject>({ kind, object, facts, body }: KindDetailProps<T> & { object: T }) {
  const mayEdit = useMayDo('update', kind, object);
  const owner = object.metadata.ownerReferences?.[0];
  const conditions = conditionsOf(object);
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <Card title={t('common.overview')}>
          <Facts
            facts={[
              ...(facts?.(object) ?? []),
              [t('common.owner'), owner && `${owner.kind} ${owner.name}`],
              [t('common.created'), <Time key="created" at={object.metadata.creationTimestamp} />],
            ]}
          />
        </Card>
        <LabelsCard kind={kind} object={object} mayEdit={mayEdit} />
      </SimpleGrid>
      {body?.(object)}
      {conditions.length > 0 && <Card title={t('common.conditions')}><Conditions conditions={conditions} /></Card>}
    </Stack>
  );
}

export function conditionsOf(object: KubeObject): Condition[] {
  const status: unknown = 'status' in object ? object.status : undefined;
  if (!isRecord(status) || !Array.isArray(status['conditions'])) return [];
  return status['conditions'].filter((each): each is Condition => isRecord(each) && typeof each['type'] === 'string' && typeof each['status'] === 'string');
}
