import type { Node } from '@/api/core';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { stateOf, toneOf, troublesOf } from './host';

export function HostState({ node }: { node: Node }) {
  const troubles = troublesOf(node).map(({ type, message }) => `${type}: ${message}`);
  return <StatusBadge tone={toneOf(node)} label={t(`hosts.${stateOf(node)}`)} hint={troubles.join('\n') || undefined} />;
}
