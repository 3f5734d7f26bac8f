import { Alert, Button, PasswordInput, Stack, Text, TextInput, Title } from '@mantine/core';
import { useState, type FormEvent } from 'react';
import { asApiError } from '@/api/errors';
import { t } from '@/i18n';
import { CodeInput } from './SecondFactor';
import { signIn } from './session';
import classes from './SignIn.module.css';

export function SignInPage() {
  return (
    <main className={classes.page}>
      <SignInCard />
    </main>
  );
}

/** Asks for the password above the screen that the user was at when his session ended. */
export function SessionOver({ user }: { user: string }) {
  return (
    <div className={classes.overlay} role="dialog" aria-modal="true" aria-label={t('app.signIn')}>
      <SignInCard user={user} note={t('app.sessionOver')} />
    </div>
  );
}

function SignInCard({ user = '', note }: { user?: string; note?: string }) {
  const [username, setUsername] = useState(user);
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [asksCode, setAsksCode] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await signIn(username.trim(), password, asksCode ? code : undefined);
    } catch (caught) {
      const { reason } = asApiError(caught);
      setCode('');
      setBusy(false);
      // What was typed first was right, and there is one more question.
      if (reason === 'TotpRequired' && !asksCode) return setAsksCode(true);
      setProblem(explain(caught));
      if (reason === 'Unauthorized') setAsksCode(false);
    }
  };
  const back = () => {
    setAsksCode(false);
    setProblem(null);
    setCode('');
  };

  return (
    <form className={classes.card} onSubmit={(event) => void submit(event)}>
      <img className={classes.mark} src={`${import.meta.env.BASE_URL}croft.svg`} alt="" />
      <Title order={1} size="h2">Croft</Title>
      <Text c="dimmed" mt={4} mb="lg">{note ?? t('app.signInLead')}</Text>
      <Stack gap="md">
        {problem && <Alert color="red" role="alert">{problem}</Alert>}
        {asksCode ? <CodeInput help={t('app.codeHelp')} size="md" value={code} onChange={setCode} /> : (
          <>
            <TextInput label={t('app.user')} name="username" autoComplete="username" autoCapitalize="none" autoFocus={!user} required size="md" value={username} onChange={(event) => setUsername(event.currentTarget.value)} />
            <PasswordInput label={t('app.password')} name="password" autoComplete="current-password" autoFocus={user !== ''} required size="md" value={password} onChange={(event) => setPassword(event.currentTarget.value)} visibilityToggleButtonProps={{ 'aria-label': t('app.showPassword') }} />
          </>
        )}
        <Button type="submit" size="md" fullWidth loading={busy}>{t('app.signIn')}</Button>
        {asksCode && <Button variant="subtle" fullWidth onClick={back}>{t('common.back')}</Button>}
      </Stack>
      {!note && !asksCode && (
        <Text size="sm" c="dimmed" mt="lg">
          <strong>{t('app.firstTime')}</strong> {t('app.firstTimeHelp')}
        </Text>
      )}
    </form>
  );
}

function explain(caught: unknown): string {
  const error = asApiError(caught);
  if (error.reason === 'TotpRequired' || error.reason === 'TotpInvalid') return t('app.wrongCode');
  if (error.code === 401) return t('app.wrongPassword');
  if (error.code === 429) return t('app.tooManyTries');
  if (error.unreachable) return t('app.unreachable');
  return error.message;
}
