import { Alert, Button, FileButton, Text, Textarea } from '@mantine/core';
import { IconFileImport } from '@tabler/icons-react';
import { useState } from 'react';
import { createObject, request, send } from '@/api/client';
import { kinds, objectPath, stevePath } from '@/api/kinds';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName, nameFrom } from '@/parts/form/names';
import { NamespaceSelect } from '@/parts/form/NamespaceSelect';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { saveText } from '@/parts/saveFile';
import { isPrivateKey, keyObject, parsePublicKey } from './key';

/** A key that the user has already: its public part is pasted or read from a file. */
export function PasteKeyDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [named, setNamed] = useState(false);
  const [namespace, setNamespace] = useState(useDefaultNamespace());
  const [text, setText] = useState('');
  const object = keyObject(name, namespace, text);

  const take = (next: string) => {
    setText(next);
    // The comment of a key mostly says whose it is.
    if (!named) setName(nameFrom(parsePublicKey(next)?.comment ?? ''));
  };
  const wrong = isPrivateKey(text) ? t('keys.isPrivate') : text.trim() !== '' && !parsePublicKey(text) ? t('keys.badKey') : undefined;
  const run = async () => {
    await createObject(kinds.keyPairs, object);
    say(t('common.actionDone', { action: t('keys.add'), name }));
  };
  const command = `kubectl apply -f ${name || 'key'}.yaml`;
  return (
    <FormDialog title={t('keys.addTitle')} onClose={onClose} run={run} submitLabel={t('keys.add')} incomplete={!isValidName(name) || text.trim() === '' || wrong !== undefined} {...(!wrong && { objects: [object], command })} placed={['metadata.name', 'spec.publicKey']}>
      {(error) => (
        <>
          <Textarea label={t('keys.publicKey')} description={t('keys.pasteHelp')} required autosize minRows={3} maxRows={8} spellCheck={false} autoComplete="off" value={text} onChange={(event) => take(event.currentTarget.value)} error={wrong ?? refusalOf(error, 'spec.publicKey')} data-autofocus />
          <FileButton onChange={(file) => void file?.text().then(take)}>
            {(props) => <Button {...props} variant="default" size="xs" leftSection={<IconFileImport size={14} />} style={{ alignSelf: 'flex-start' }}>{t('keys.fromFile')}</Button>}
          </FileButton>
          <NameInput label={t('common.name')} value={name} onChange={(next) => { setName(next); setNamed(true); }} error={refusalOf(error, 'metadata.name')} />
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </>
      )}
    </FormDialog>
  );
}

/** A new key: the server makes it, keeps the public part, and the browser saves the private one. */
export function GenerateKeyDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState(useDefaultNamespace());
  const run = async () => {
    const answer = await send('POST', `${stevePath(kinds.keyPairs)}?action=keygen`, JSON.stringify({ name, namespace }));
    const privateKey = await answer.text();
    // Without its other half a public key is worth nothing.
    if (!isPrivateKey(privateKey)) {
      await request('DELETE', objectPath(kinds.keyPairs, namespace, name));
      throw new Error(t('keys.generateFailed'));
    }
    saveText(`${name}.pem`, privateKey, 'application/x-pem-file');
    say(t('keys.generated', { file: `${name}.pem` }));
  };
  const command = `ssh-keygen -t rsa -m PEM -f ${name || 'key'}.pem`;
  return (
    <FormDialog title={t('keys.generateTitle')} onClose={onClose} run={run} submitLabel={t('keys.generate')} incomplete={!isValidName(name)} command={command} placed={['metadata.name']}>
      {(error) => (
        <>
          <Text size="sm" c="dimmed">{t('keys.generateHelp')}</Text>
          <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
          <NamespaceSelect value={namespace} onChange={setNamespace} />
          <Alert color="yellow">{t('keys.generateOnce')}</Alert>
        </>
      )}
    </FormDialog>
  );
}
