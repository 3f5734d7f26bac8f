import { Input, Select, Stack, Switch } from '@mantine/core';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { isRecord } from '@/api/types';
import { t } from '@/i18n';
import { LazyEditor } from '@/parts/yaml/lazyEditor';
import { problemOf } from './cloudInit';
import classes from './Create.module.css';
import type { FieldsProps } from './fields';

const templateLabel = 'harvesterhci.io/cloud-init-template';

export function CloudInitFields({ form, change }: FieldsProps) {
  // Stored cloud-configs are ConfigMaps with this label: user or network.
  const stored = useCollection(kinds.configMaps, { labelSelector: templateLabel }).items;
  const pick = (id: string | null) => {
    const found = stored.find(({ metadata }) => `${metadata.namespace}/${metadata.name}` === id);
    const data = found && 'data' in found && isRecord(found.data) ? found.data : {};
    const text = typeof data['cloudInit'] === 'string' ? data['cloudInit'] : '';
    if (found?.metadata.labels?.[templateLabel] === 'network') change({ networkData: text });
    else change({ userData: text });
  };
  const problem = problemOf(form.userData);
  return (
    <Stack>
      {stored.length > 0 && <Select label={t('create.useTemplate')} clearable data={stored.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`)} onChange={pick} />}
      <Input.Wrapper label={t('create.userData')} description={t('create.userDataHelp')} error={problem}>
        <div className={classes.editor}><LazyEditor label={t('create.userData')} value={form.userData} onChange={(userData) => change({ userData })} /></div>
      </Input.Wrapper>
      <Switch label={t('create.installAgent')} description={t('create.installAgentHelp')} checked={form.installAgent} onChange={(event) => change({ installAgent: event.currentTarget.checked })} />
      <Input.Wrapper label={t('create.networkData')}>
        <div className={classes.editor}><LazyEditor label={t('create.networkData')} value={form.networkData} onChange={(networkData) => change({ networkData })} /></div>
      </Input.Wrapper>
    </Stack>
  );
}
