import { Text } from '@mantine/core';
import type { AuditEvent } from '@/api/audit';
import type { Key } from '@/i18n';
import { t } from '@/i18n';
import { RowLink } from '@/parts/RowLink';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column } from '@/parts/table/columns';
import { Time } from '@/parts/Time';
import { addressOf, subjectOf, toneOf, whoOf } from './entry';

const verbs: Record<string, Key> = {
  create: 'audit.did_create',
  update: 'audit.did_update',
  patch: 'audit.did_patch',
  delete: 'audit.did_delete',
  deletecollection: 'audit.did_deletecollection',
  get: 'audit.did_get',
  login: 'audit.did_login',
  logout: 'audit.did_logout',
};

function verbOf(event: AuditEvent): string {
  const key = verbs[event.verb];
  return key ? t(key) : event.verb;
}

export function WhoCell({ event }: { event: AuditEvent }) {
  const who = whoOf(event);
  if (!who.name) return <Text span size="sm" c="dimmed">{t('audit.nobody')}</Text>;
  if (who.unproven) return <span>{who.name} <Text span size="sm" c="dimmed">({t('audit.unproven')})</Text></span>;
  return <span>{who.name}{who.as && <Text span size="sm" c="dimmed"> {t('audit.actedAs', { name: who.as })}</Text>}</span>;
}

export function WhatCell({ event }: { event: AuditEvent }) {
  const { namespace, name } = event.objectRef ?? {};
  const address = addressOf(event);
  const shown = namespace && name && namespace !== name ? `${namespace}/${name}` : (name ?? namespace);
  const isSession = event.verb === 'login' || event.verb === 'logout';
  return (
    <span title={event.requestURI}>
      {verbOf(event)} {!isSession && <Text span size="sm" c="dimmed">{subjectOf(event)}</Text>} {shown && (address ? <RowLink to={address}>{shown}</RowLink> : <b>{shown}</b>)}
    </span>
  );
}

/** The first column names the row. */
export function auditColumns(): Column<AuditEvent>[] {
  return [
    { id: 'time', title: t('audit.when'), value: (event) => Date.parse(event.stageTimestamp), cell: (event) => <Time at={event.stageTimestamp} />, width: '130px', phone: true },
    { id: 'who', title: t('audit.who'), value: (event) => whoOf(event).name, cell: (event) => <WhoCell event={event} />, width: 'minmax(150px, 1fr)', phone: true },
    { id: 'what', title: t('audit.what'), value: (event) => [event.verb, subjectOf(event), event.objectRef?.namespace, event.objectRef?.name].filter(Boolean).join(' '), cell: (event) => <WhatCell event={event} />, width: 'minmax(240px, 3fr)', phone: true },
    { id: 'code', title: t('audit.result'), value: (event) => event.responseStatus?.code, cell: (event) => <Result event={event} />, width: '190px', phone: true },
    { id: 'from', title: t('audit.from'), value: (event) => event.sourceIPs?.[0], width: '140px' },
    { id: 'program', title: t('audit.program'), value: (event) => event.userAgent, width: 'minmax(160px, 1fr)', hidden: true },
  ];
}

function Result({ event }: { event: AuditEvent }) {
  const { code, reason, message } = event.responseStatus ?? {};
  return <StatusBadge tone={toneOf(code)} label={[code, reason].filter(Boolean).join(' ')} {...(message && { hint: message })} />;
}
