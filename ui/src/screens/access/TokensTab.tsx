import { ActionIcon, Tooltip } from '@mantine/core';
import { IconKey, IconTrash } from '@tabler/icons-react';
import { useQueryClient } from '@tanstack/react-query';
import { useMemo } from 'react';
import { deleteObject } from '@/api/client';
import { asApiError } from '@/api/errors';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ask } from '@/parts/confirm';
import { say } from '@/parts/notify';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { exact, Time, useNow } from '@/parts/Time';
import type { OwnToken } from './ownTokens';
import { endToken, ownTokensKey, useOwnTokens } from './ownTokens';
import { NewTokenButton } from './TokenDialog';
import { useAllTokens } from './useAccess';
import type { Token } from './user';

/** A token as the table shows it; with its Secret for those who may see those of others. */
export type TokenRow = Omit<Token, 'secret' | 'account' | 'groups'> & { secret?: Token['secret']; current?: boolean };

/** One's own tokens; for administrators those of everybody, live. */
export function TokensTab() {
  const all = useAllTokens();
  const own = useOwnTokens();
  const current = own.data?.data.find((token) => token.current)?.id;
  const rows = useMemo(
    (): TokenRow[] => (all.maySee ? all.tokens.map((token) => ({ ...token, current: token.id === current })) : (own.data?.data ?? []).map(ownRow)),
    [all.maySee, all.tokens, own.data, current],
  );
  const columns = useMemo(() => tokenColumns(), []);
  const facets = useMemo(() => tokenFacets(), []);
  const phase = own.error ? 'failed' : own.data ? 'ready' : 'loading';
  const snapshot = all.maySee ? all.snapshot : { items: rows, phase, error: own.error ? asApiError(own.error) : null } as const;
  return (
    <DataTable
      id="tokens"
      snapshot={snapshot}
      rows={rows}
      columns={columns}
      facets={facets}
      keyOf={rowKey}
      nameOf={rowKey}
      defaultSort={{ column: 'age', descending: false }}
      empty={<Blank icon={IconKey} title={t('access.noTokens')} text={t('access.noTokensHelp')}><NewTokenButton /></Blank>}
      menu={rowMenu}
    />
  );
}

function ownRow(token: OwnToken): TokenRow {
  return { id: token.id, user: token.userId.replace(/^user-/, ''), description: token.description, kind: token.isDerived ? 'apikey' : 'session', expires: token.expiresAt, created: token.created, current: token.current };
}

const rowKey = (token: TokenRow) => token.id;
const rowMenu = (token: TokenRow) => <TokenMenu token={token} />;

/** Ends a token. */
export function TokenMenu({ token }: { token: TokenRow }) {
  const queries = useQueryClient();
  const run = () =>
    ask({
      title: t('access.endTitle', { name: token.description || token.id }),
      body: t(token.current ? 'access.endCurrent' : 'access.endHelp'),
      confirm: t('access.end'),
      dangerous: true,
      run: async () => {
        await (token.secret ? deleteObject(kinds.secrets, token.secret) : endToken(token.id));
        void queries.invalidateQueries({ queryKey: ownTokensKey });
        say(t('common.saved'));
      },
    });
  return (
    <Tooltip label={t('access.end')}>
      <ActionIcon variant="subtle" color="red" aria-label={t('access.endTitle', { name: token.description || token.id })} onClick={run}><IconTrash size={16} /></ActionIcon>
    </Tooltip>
  );
}

export function tokenKindText(token: TokenRow): string {
  switch (token.kind) {
    case 'session':
      return t('access.kindSession');
    case 'apikey':
      return t('access.kindKey');
    case 'kubeconfig':
      return t('access.kindKubeconfig');
    default:
      return t('access.kindCommand');
  }
}

function Expiry({ expires }: { expires: string }) {
  const now = useNow();
  if (!expires) return <>{t('common.never')}</>;
  const end = Date.parse(expires);
  if (end <= now) return <StatusBadge tone="bad" label={t('access.expired')} />;
  const days = Math.ceil((end - now) / 86_400_000);
  return <Tooltip label={exact(end)}><span>{t('access.inDays', { count: days })}</span></Tooltip>;
}

function tokenColumns(): Column<TokenRow>[] {
  return [
    { id: 'name', title: t('common.description'), value: (token) => token.description || token.id, cell: (token) => <>{token.description || token.id}{token.current && ` (${t('access.thisSession')})`}</>, width: 'minmax(180px, 2fr)', phone: true },
    { id: 'id', title: t('access.id'), value: (token) => token.id, width: 'minmax(130px, 1fr)', hidden: true },
    { id: 'user', title: t('access.user'), value: (token) => token.user },
    { id: 'kind', title: t('common.type'), value: tokenKindText, width: 'minmax(130px, 1fr)' },
    { id: 'expires', title: t('access.expires'), value: (token) => token.expires, cell: (token) => <Expiry expires={token.expires} />, width: 'minmax(120px, 1fr)', phone: true, unsearched: true },
    { id: 'age', title: t('common.age'), value: (token) => -Date.parse(token.created ?? ''), cell: (token) => <Time at={token.created} />, width: '124px', unsearched: true },
  ];
}

function tokenFacets(): Facet<TokenRow>[] {
  return [
    { id: 'kind', title: t('common.type'), values: (token) => [tokenKindText(token)] },
    { id: 'user', title: t('access.user'), values: (token) => [token.user] },
  ];
}
