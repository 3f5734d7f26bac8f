import { Alert, Button, PasswordInput, Stack, Text, Title } from '@mantine/core';
import { useState, type FormEvent } from 'react';
import { asApiError } from '@/api/errors';
import { t } from '@/i18n';
import { changePassword, outdatedPassword, signOut } from './session';
import classes from './SignIn.module.css';

const shortest = 12;

export function ChangePasswordPage({ user }: { user: string }) {
  return (
    <main className={classes.page}>
      <div className={classes.card}>
        <img className={classes.mark} src={`${import.meta.env.BASE_URL}croft.svg`} alt="" />
        <Title order={1} size="h2">{t('app.changePassword')}</Title>
        <Text c="dimmed" mt={4} mb="lg">{t('app.changePasswordLead')}</Text>
        <PasswordForm user={user} known={outdatedPassword()} submitLabel={t('app.setPassword')} />
        <Button variant="subtle" fullWidth mt="xs" onClick={() => void signOut()}>{t('app.signOut')}</Button>
      </div>
    </main>
  );
}

interface PasswordFormProps {
  user: string;
  /** The current password, if it need not be asked for. */
  known?: string | undefined;
  submitLabel: string;
  onDone?: () => void;
}

export function PasswordForm({ user, known, submitLabel, onDone }: PasswordFormProps) {
  const [current, setCurrent] = useState(known ?? '');
  const [wanted, setWanted] = useState('');
  const [again, setAgain] = useState('');
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const missing = shortest - wanted.length;
  const differ = again !== '' && again !== wanted;

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (missing > 0 || again !== wanted) return;
    setBusy(true);
    setProblem(null);
    try {
      await changePassword(current, wanted);
      onDone?.();
    } catch (caught) {
      setProblem(asApiError(caught).message);
    } finally {
      setBusy(false);
    }
  };

  const toggle = { 'aria-label': t('app.showPassword') };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <Stack gap="md">
        {problem && <Alert color="red" role="alert">{problem}</Alert>}
        {/* Password managers want to know whose password this is. */}
        <input type="text" name="username" autoComplete="username" value={user} readOnly hidden />
        {known === undefined && <PasswordInput label={t('app.currentPassword')} autoComplete="current-password" required autoFocus value={current} onChange={(event) => setCurrent(event.currentTarget.value)} visibilityToggleButtonProps={toggle} />}
        <PasswordInput label={t('app.newPassword')} description={t('app.newPasswordHelp')} autoComplete="new-password" required autoFocus={known !== undefined} value={wanted} onChange={(event) => setWanted(event.currentTarget.value)} error={wanted !== '' && missing > 0 ? t('app.newPasswordShort', { count: missing }) : undefined} visibilityToggleButtonProps={toggle} />
        <PasswordInput label={t('app.repeatPassword')} autoComplete="new-password" required value={again} onChange={(event) => setAgain(event.currentTarget.value)} error={differ ? t('app.passwordsDiffer') : undefined} visibilityToggleButtonProps={toggle} />
        <Button type="submit" fullWidth loading={busy} disabled={missing > 0 || again !== wanted || current === ''}>{submitLabel}</Button>
      </Stack>
    </form>
  );
}
