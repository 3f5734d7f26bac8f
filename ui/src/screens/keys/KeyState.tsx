import type { KeyPair } from '@/api/harvester';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { keyTones, stateOf } from './key';

export function KeyState({ pair }: { pair: KeyPair }) {
  const { state, message } = stateOf(pair);
  return <StatusBadge tone={keyTones[state]} label={t(`keys.${state}`)} {...(message && { hint: message })} />;
}
