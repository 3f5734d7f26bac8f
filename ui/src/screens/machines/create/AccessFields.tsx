import { Button, Group, MultiSelect, PasswordInput, Textarea, TextInput } from '@mantine/core';
import { useState } from 'react';
import { t } from '@/i18n';
import { randomPassword } from '@/parts/form/names';
import classes from './Create.module.css';
import type { ChoiceFieldsProps } from './fields';

const publicKey = /^(ssh-(rsa|ed25519|dss)|ecdsa-sha2-\S+|sk-(ssh|ecdsa)\S+) [A-Za-z0-9+/=]+/;

/** How one gets into the guest. */
export function AccessFields({ form, change, choices }: ChoiceFieldsProps) {
  const [pasted, setPasted] = useState('');
  const [visible, setVisible] = useState(false);
  const known = new Map(choices.keyPairs.map((pair) => [pair.spec.publicKey.trim(), pair]));
  const stored = form.keys.filter((key) => known.has(key));
  const lines = pasted.split('\n').map((line) => line.trim()).filter(Boolean);
  const wrong = lines.some((line) => !publicKey.test(line));

  const setKeys = (chosen: string[], text: string) => {
    const own = text.split('\n').map((line) => line.trim()).filter((line) => publicKey.test(line));
    change({ keys: [...chosen, ...own] });
  };
  return (
    <div className={classes.columns}>
      <div>
        <Group gap={6} align="flex-end" wrap="nowrap">
          <PasswordInput style={{ flex: 1 }} label={t('create.password')} description={t('create.passwordHelp')} autoComplete="new-password" value={form.password} visible={visible} onVisibilityChange={setVisible} onChange={(event) => change({ password: event.currentTarget.value })} visibilityToggleButtonProps={{ 'aria-label': t('app.showPassword') }} />
          <Button variant="default" px="sm" onClick={() => { change({ password: randomPassword() }); setVisible(true); }}>{t('create.generate')}</Button>
        </Group>
        <TextInput mt="sm" label={t('create.user')} description={t('create.userHelp')} autoComplete="off" value={form.user} onChange={(event) => change({ user: event.currentTarget.value.trim() })} />
      </div>
      <div>
        <MultiSelect
          label={t('create.keys')}
          placeholder={stored.length === 0 ? t('create.keysPlaceholder') : ''}
          data={[...known].map(([key, pair]) => ({ value: key, label: `${pair.metadata.namespace}/${pair.metadata.name}` }))}
          value={stored}
          onChange={(chosen) => setKeys(chosen, pasted)}
          searchable
          clearable
        />
        <Textarea mt="sm" label={t('create.pasteKey')} autosize minRows={2} maxRows={6} spellCheck={false} value={pasted} error={wrong ? t('create.badKey') : undefined} onChange={(event) => { setPasted(event.currentTarget.value); setKeys(stored, event.currentTarget.value); }} />
      </div>
    </div>
  );
}
