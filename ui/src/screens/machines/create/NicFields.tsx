import { ActionIcon, Button, Select, TextInput } from '@mantine/core';
import { IconPlus, IconTrash } from '@tabler/icons-react';
import { t } from '@/i18n';
import classes from './Create.module.css';
import type { ChoiceFieldsProps } from './fields';
import type { NicForm } from './form';
import { newNic } from './form';

const models = ['virtio', 'e1000', 'e1000e', 'rtl8139', 'ne2k_pci', 'pcnet'];
const hardwareAddress = /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i;

export function NicFields({ form, change, choices }: ChoiceFieldsProps) {
  const set = (nics: NicForm[]) => change({ nics });
  const setOne = (nic: NicForm, changes: Partial<NicForm>) => set(form.nics.map((each) => (each === nic ? { ...nic, ...changes } : each)));
  return (
    <>
      {form.nics.map((nic) => (
        <div className={classes.item} key={nic.id}>
          <Select label={t('create.network')} allowDeselect={false} data={choices.networkOptions} value={nic.network} onChange={(network) => setOne(nic, { network: network ?? '' })} />
          <Select label={t('create.model')} allowDeselect={false} data={models} value={nic.model} onChange={(model) => setOne(nic, { model: model ?? 'virtio' })} />
          <TextInput label={t('create.mac')} placeholder={t('create.macAuto')} value={nic.mac} onChange={(event) => setOne(nic, { mac: event.currentTarget.value.trim() })} error={nic.mac && !hardwareAddress.test(nic.mac) ? t('create.badMac') : undefined} />
          <ActionIcon variant="subtle" color="gray" aria-label={t('common.remove')} onClick={() => set(form.nics.filter((each) => each !== nic))}><IconTrash size={16} /></ActionIcon>
        </div>
      ))}
      <Button mt="sm" variant="default" size="xs" leftSection={<IconPlus size={14} />} onClick={() => set([...form.nics, newNic()])}>{t('create.addNic')}</Button>
    </>
  );
}
