import { Alert, Button, Code, CopyButton, Loader, PasswordInput, SimpleGrid, Stack, Text, TextInput } from '@mantine/core';
import { useEffect, useState, type FormEvent, type ReactNode } from 'react';
import { asApiError } from '@/api/errors';
import { t } from '@/i18n';
import { beginSecondFactor, confirmSecondFactor, endSecondFactor, secondFactor, squares, type Offer } from './secondFactor';

type Step =
  | { at: 'loading' }
  | { at: 'off' }
  | { at: 'on'; left: number }
  | { at: 'offered'; offer: Offer }
  | { at: 'done'; codes: string[] };

/** Switches the second factor of the user on or off. */
export function SecondFactorForm({ user, onDone }: { user: string; onDone: (on: boolean) => void }) {
  const [step, setStep] = useState<Step>({ at: 'loading' });
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    secondFactor().then(
      ({ on, recoveryCodesLeft }) => setStep(on ? { at: 'on', left: recoveryCodesLeft } : { at: 'off' }),
      (caught: unknown) => setProblem(asApiError(caught).message),
    );
  }, []);

  switch (step.at) {
    case 'loading':
      return problem ? <Alert color="red" role="alert">{problem}</Alert> : <Loader size="sm" aria-label={t('app.secondFactor')} />;
    case 'off':
      return <Begin user={user} onBegun={(offer) => setStep({ at: 'offered', offer })} />;
    case 'offered':
      return <Confirm offer={step.offer} onConfirmed={(codes) => setStep({ at: 'done', codes })} />;
    case 'on':
      return <End left={step.left} onEnded={() => onDone(false)} />;
    case 'done':
      return <RecoveryCodes codes={step.codes} onRead={() => onDone(true)} />;
  }
}

function Begin({ user, onBegun }: { user: string; onBegun: (offer: Offer) => void }) {
  const [password, setPassword] = useState('');
  return (
    <Question label={t('common.next')} ready={password !== ''} ask={async () => onBegun(await beginSecondFactor(password))}>
      <Text size="sm">{t('app.secondFactorLead')}</Text>
      <input type="text" name="username" autoComplete="username" value={user} readOnly hidden />
      <PasswordInput label={t('app.currentPassword')} autoComplete="current-password" required data-autofocus value={password} onChange={(event) => setPassword(event.currentTarget.value)} visibilityToggleButtonProps={{ 'aria-label': t('app.showPassword') }} />
    </Question>
  );
}

function Confirm({ offer, onConfirmed }: { offer: Offer; onConfirmed: (codes: string[]) => void }) {
  const [code, setCode] = useState('');
  return (
    <Question label={t('app.secondFactorOn')} ready={code.trim() !== ''} ask={async () => onConfirmed(await confirmSecondFactor(code))}>
      <Text size="sm">{t('app.secondFactorScan')}</Text>
      <QrCode rows={offer.qr} />
      <Text size="sm">{t('app.secondFactorKey')} <Code>{offer.secret}</Code></Text>
      <CodeInput help={t('app.firstCodeHelp')} value={code} onChange={setCode} />
    </Question>
  );
}

function End({ left, onEnded }: { left: number; onEnded: () => void }) {
  const [code, setCode] = useState('');
  const end = async () => {
    await endSecondFactor(code);
    onEnded();
  };
  return (
    <Question label={t('app.secondFactorOff')} ready={code.trim() !== ''} ask={end} color="red">
      <Text size="sm">{t('app.secondFactorIsOn', { count: left })}</Text>
      <CodeInput help={t('app.codeHelp')} value={code} onChange={setCode} />
    </Question>
  );
}

function RecoveryCodes({ codes, onRead }: { codes: string[]; onRead: () => void }) {
  return (
    <Stack gap="md">
      <Alert color="yellow">{t('app.recoveryCodesLead')}</Alert>
      <SimpleGrid cols={2} component="ul" aria-label={t('app.recoveryCodes')} p={0} m={0}>
        {codes.map((code) => <Code key={code} component="li" display="block" ta="center">{code}</Code>)}
      </SimpleGrid>
      <CopyButton value={codes.join('\n')}>
        {({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? t('common.copied') : t('common.copy')}</Button>}
      </CopyButton>
      <Button onClick={onRead}>{t('app.recoveryCodesKept')}</Button>
    </Stack>
  );
}

interface QuestionProps {
  label: string;
  ready: boolean;
  ask: () => Promise<void>;
  color?: string;
  children: ReactNode;
}

/** A form that shows what the server has against what was typed. */
function Question({ label, ready, ask, color, children }: QuestionProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await ask();
    } catch (caught) {
      const error = asApiError(caught);
      setProblem(error.reason === 'TotpInvalid' ? t('app.wrongCode') : error.message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <Stack gap="md">
        {problem && <Alert color="red" role="alert">{problem}</Alert>}
        {children}
        <Button type="submit" fullWidth loading={busy} disabled={!ready} {...(color ? { color } : {})}>{label}</Button>
      </Stack>
    </form>
  );
}

interface CodeInputProps {
  help: string;
  value: string;
  onChange: (code: string) => void;
  size?: 'sm' | 'md';
}

export function CodeInput({ help, value, onChange, size = 'sm' }: CodeInputProps) {
  // Not only digits: a recovery code has letters.
  return <TextInput label={t('app.code')} description={help} name="totp" autoComplete="one-time-code" autoCapitalize="none" spellCheck={false} autoFocus required size={size} value={value} onChange={(event) => onChange(event.currentTarget.value)} />;
}

function QrCode({ rows }: { rows: string[] }) {
  const margin = 4;
  const size = rows.length + 2 * margin;
  return (
    // Dark on light in any theme: many apps read nothing else.
    <svg role="img" aria-label={t('app.qrCode')} viewBox={`0 0 ${size} ${size}`} width="220" height="220" shapeRendering="crispEdges" style={{ alignSelf: 'center' }}>
      <rect width={size} height={size} fill="#fff" />
      <path d={squares(rows, margin)} fill="#000" />
    </svg>
  );
}
