import { asApiError } from '@/api/errors';
import type { Kind } from '@/api/kinds';
import { apiVersionOf, kindId } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { useDefaultNamespace } from '@/app/namespace';
import { NotFound } from '@/app/NotFound';
import { t } from '@/i18n';
import { PageHead } from '@/parts/Page';
import { Failure, Loading } from '@/parts/States';
import { toYaml } from '@/parts/yaml/document';
import { YamlCreate } from '@/parts/yaml/YamlCreate';
import { kindAddress, useKind } from './useKind';

export function Screen() {
  const { kind, loading, error } = useKind();
  if (loading) return <Loading />;
  if (error) return <Failure error={asApiError(error)} />;
  if (!kind) return <NotFound />;
  return <NewObject key={kindId(kind)} kind={kind} />;
}

function NewObject({ kind }: { kind: Kind }) {
  const namespace = useDefaultNamespace();
  const area = kindAddress(kind);
  const starter = { apiVersion: apiVersionOf(kind), kind: kind.kind, metadata: { name: 'new', ...(kind.namespaced && { namespace }) } };
  return (
    <>
      <PageHead title={t('explorer.createTitle', { kind: kind.kind })} parent={{ title: kind.kind, to: area }} />
      <YamlCreate kind={kind} starter={toYaml(starter)} back={area} addressOf={(made) => objectAddress(kind.namespaced ? area : `${area}/_`, made)} />
    </>
  );
}
