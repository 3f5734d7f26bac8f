import { Button, Select, Stack, TextInput } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { Once } from './Once';
import { createToken, ownTokensKey } from './ownTokens';

export function NewTokenButton() {
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <TokenDialog onClose={close} />)}>{t('access.newToken')}</Button>;
}

/** The server keeps no token of its own making longer than the last of these. */
const days = ['1', '7', '30', '90'];

function TokenDialog({ onClose }: { onClose: () => void }) {
  const [description, setDescription] = useState('');
  const [lasting, setLasting] = useState('30');
  const queries = useQueryClient();
  const body = JSON.stringify({ description, ttl: Number(lasting) * 86_400_000 });
  return (
    <FormDialog
      title={t('access.newToken')}
      onClose={onClose}
      submitLabel={t('common.create')}
      incomplete={description.trim() === ''}
      command={`curl -u USER:PASSWORD ${window.location.origin}/v3/tokens -d '${body.replaceAll("'", "'\\''")}'`}
      run={async () => {
        const { token = '' } = await createToken(description, Number(lasting));
        void queries.invalidateQueries({ queryKey: ownTokensKey });
        openDialog((close) => <Once title={t('access.tokenMade')} secret={token} onClose={close}>{t('access.tokenMadeHelp')}</Once>);
      }}
    >
      <Stack>
        <TextInput label={t('common.description')} description={t('access.tokenDescriptionHelp')} required maxLength={200} data-autofocus value={description} onChange={(event) => setDescription(event.currentTarget.value)} />
        <Select label={t('access.lasts')} allowDeselect={false} data={days.map((value) => ({ value, label: t('access.days', { count: Number(value) }) }))} value={lasting} onChange={(next) => setLasting(next ?? '30')} />
      </Stack>
    </FormDialog>
  );
}
