import { Alert, Radio, Stack, Switch, Text } from '@mantine/core';
import { useState } from 'react';
import { createObject } from '@/api/client';
import type { VirtualMachineBackup, VirtualMachineRestore } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName, randomSuffix } from '@/parts/form/names';
import { NamespaceSelect } from '@/parts/form/NamespaceSelect';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import type { MachineRow } from '../machine';

/** Brings a machine back, in its place or as another one. */
export function RestoreDialog({ backup, row, onClose }: { backup: VirtualMachineBackup; row: MachineRow | undefined; onClose: () => void }) {
  const { name, namespace = 'default' } = backup.metadata;
  const source = backup.spec.source.name;
  const running = row?.instance !== undefined;
  const [way, setWay] = useState<'replace' | 'new'>(row && !running ? 'replace' : 'new');
  const [target, setTarget] = useState(`${source}-restored`.slice(0, 63));
  const [deleteOld, setDeleteOld] = useState(false);
  const [halted, setHalted] = useState(false);
  const [keepMac, setKeepMac] = useState(false);
  const [targetNamespace, setTargetNamespace] = useState(namespace);
  const isBackup = backup.spec.type !== 'snapshot';
  const into = way === 'new' && isBackup ? targetNamespace : namespace;
  const deletes = way === 'replace' && isBackup && deleteOld;
  const [suffix] = useState(() => randomSuffix());
  const object: VirtualMachineRestore = {
    apiVersion: 'harvesterhci.io/v1beta1',
    kind: 'VirtualMachineRestore',
    metadata: { name: `restore-${name.slice(0, 45)}-${suffix}`, namespace: into },
    spec: {
      target: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: way === 'new' ? target : source },
      virtualMachineBackupName: name,
      virtualMachineBackupNamespace: namespace,
      newVM: way === 'new',
      deletionPolicy: deletes ? 'delete' : 'retain',
      ...(way === 'new' && keepMac && { keepMacAddress: true }),
      ...(halted && { haltAfterRestore: true }),
    },
  };
  const run = async () => {
    await createObject(kinds.restores, object);
    say(t('detail.restoring', { name: object.spec.target.name }));
  };
  const blocked = way === 'replace' && running;
  const command = [`croft ${isBackup ? 'backup' : 'snapshot'} restore ${name}`, way === 'new' && `--to ${target}`, deletes && '--delete-disks', `-n ${namespace}`].filter(Boolean).join(' ');
  return (
    <FormDialog title={t('detail.restoreTitle', { name })} onClose={onClose} run={run} submitLabel={t('detail.restore')} dangerous={way === 'replace'} incomplete={blocked || (way === 'new' && !isValidName(target))} objects={[object]} {...(into === namespace && !halted && !keepMac && { command })} placed={['spec.target', 'spec.newVM', 'spec.keepMacAddress']}>
      {(error) => (
        <>
          <Radio.Group aria-label={t('detail.restore')} value={way} onChange={(value) => setWay(value as typeof way)}>
            <Stack gap={8}>
              <Radio value="replace" label={t('detail.restoreReplace')} disabled={!row} />
              <Radio value="new" label={t('detail.restoreNew')} />
            </Stack>
          </Radio.Group>
          {blocked && <Alert color="yellow">{t('detail.restoreMustStop')}</Alert>}
          {way === 'replace' ? (
            <>
              <Text size="sm" c="dimmed">{t('detail.restoreReplaceHelp')}</Text>
              {isBackup && <Switch label={t('detail.restoreDelete')} checked={deleteOld} onChange={(event) => setDeleteOld(event.currentTarget.checked)} />}
              {refusalOf(error, 'spec.target', 'spec.newVM') && <Alert color="red" role="alert">{refusalOf(error, 'spec.target', 'spec.newVM')}</Alert>}
            </>
          ) : (
            <>
              <NameInput label={t('detail.restoreNewName')} value={target} onChange={setTarget} error={refusalOf(error, 'spec.target', 'spec.newVM')} />
              {isBackup && <NamespaceSelect value={targetNamespace} onChange={setTargetNamespace} />}
              {!row && <Switch label={t('detail.restoreKeepMac')} checked={keepMac} onChange={(event) => setKeepMac(event.currentTarget.checked)} error={refusalOf(error, 'spec.keepMacAddress')} />}
            </>
          )}
          <Switch label={t('detail.restoreHalted')} checked={halted} onChange={(event) => setHalted(event.currentTarget.checked)} />
        </>
      )}
    </FormDialog>
  );
}
