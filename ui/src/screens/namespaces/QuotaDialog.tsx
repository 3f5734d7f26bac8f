import { NumberInput, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { createObject, replaceObject } from '@/api/client';
import type { ResourceQuota } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { parseQuantity } from '@/api/quantity';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { SizeInput } from '@/parts/form/SizeInput';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import type { Bound } from './quota';
import { boundable, isMemory } from './quota';

interface QuotaDialogProps {
  namespace: string;
  quota?: ResourceQuota;
  onClose: () => void;
}

/** How much the machines of a namespace may have together. */
export function QuotaDialog({ namespace, quota, onClose }: QuotaDialogProps) {
  const [name, setName] = useState(quota?.metadata.name ?? 'quota');
  const [hard, setHard] = useState<Record<string, string>>(quota?.spec?.hard ?? {});
  const set = (bound: Bound, value: string) => setHard((before) => ({ ...before, [bound]: value }));
  const bounds = Object.fromEntries(Object.entries(hard).filter(([, value]) => value !== ''));
  const built: ResourceQuota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: quota?.metadata ?? { name, namespace }, spec: { ...quota?.spec, hard: bounds } };
  return (
    <FormDialog
      title={quota ? t('namespaces.editQuota', { name }) : t('namespaces.addQuota')}
      onClose={onClose}
      submitLabel={quota ? t('common.save') : t('common.create')}
      incomplete={!isValidName(name) || Object.keys(bounds).length === 0}
      placed={['metadata.name', 'spec.hard']}
      objects={[built]}
      command={`kubectl -n ${namespace} ${quota ? 'replace' : 'create'} quota ${name} --hard=${Object.entries(bounds).map(([key, value]) => `${key}=${value}`).join(',')}`}
      run={async () => {
        await (quota ? replaceObject(kinds.resourceQuotas, built) : createObject(kinds.resourceQuotas, built));
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack>
          <Text size="sm" c="dimmed">{t('namespaces.quotaHelp')}</Text>
          {!quota && <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} />}
          {boundable.map((bound) =>
            isMemory(bound) ? (
              <SizeInput key={bound} label={t(`namespaces.${bound}`)} value={hard[bound] ?? ''} onChange={(value) => set(bound, value)} error={refusalOf(error, `spec.hard[${bound}]`)} />
            ) : (
              <NumberInput key={bound} label={t(`namespaces.${bound}`)} min={0} decimalScale={bound === 'pods' ? 0 : 3} value={parseQuantity(hard[bound]) ?? ''} onChange={(value) => set(bound, String(value))} error={refusalOf(error, `spec.hard[${bound}]`)} />
            ),
          )}
        </Stack>
      )}
    </FormDialog>
  );
}
