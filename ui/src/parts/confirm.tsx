import { Alert, Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useState, useSyncExternalStore, type ReactNode } from 'react';
import { asApiError } from '@/api/errors';
import { t } from '@/i18n';

/** A question that must be answered before something is done. */
export interface Question {
  title: string;
  /** What will be lost, or what happens. */
  body: ReactNode;
  confirm: string;
  dangerous?: boolean;
  /** For what cannot be brought back: this has to be typed. */
  typed?: string;
  run: () => Promise<unknown>;
}

let asked: Question | null = null;
const listeners = new Set<() => void>();

/** Asks, and does it if the user agrees; a refusal of the server is shown in the dialog. */
export function ask(question: Question): void {
  set(question);
}

function set(question: Question | null): void {
  asked = question;
  listeners.forEach((listener) => listener());
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Where questions appear; once in the page. */
export function ConfirmHost() {
  const question = useSyncExternalStore(subscribe, () => asked);
  return (
    <Modal opened={question !== null} onClose={() => set(null)} title={question?.title} size="md" closeButtonProps={{ 'aria-label': t('common.close') }}>
      {question && <Answer key={question.title} question={question} onClose={() => set(null)} />}
    </Modal>
  );
}

function Answer({ question, onClose }: { question: Question; onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const blocked = question.typed !== undefined && typed !== question.typed;

  const run = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await question.run();
      onClose();
    } catch (caught) {
      setProblem(asApiError(caught).message);
      setBusy(false);
    }
  };

  return (
    <form onSubmit={(event) => { event.preventDefault(); if (!blocked) void run(); }}>
      <Stack>
        {typeof question.body === 'string' ? <Text>{question.body}</Text> : question.body}
        {question.typed !== undefined && (
          <TextInput label={t('common.typeToConfirm', { name: question.typed })} value={typed} onChange={(event) => setTyped(event.currentTarget.value)} data-autofocus autoComplete="off" />
        )}
        {problem && <Alert color="red" role="alert" title={t('common.refused')}>{problem}</Alert>}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus={question.typed === undefined || undefined}>{t('common.cancel')}</Button>
          <Button type="submit" color={question.dangerous ? 'red' : undefined} disabled={blocked} loading={busy}>{question.confirm}</Button>
        </Group>
      </Stack>
    </form>
  );
}
