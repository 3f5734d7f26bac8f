import { asApiError } from '@/api/errors';
import { NotFound } from '@/app/NotFound';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Failure, Loading } from '@/parts/States';
import { t } from '@/i18n';
import { apiVersionOf } from '@/api/kinds';
import { statusOf } from './ObjectsScreen';
import { kindAddress, useKind } from './useKind';

/** One object of any kind. */
export function Screen() {
  const { kind, loading, error } = useKind();
  if (loading) return <Loading />;
  if (error) return <Failure error={asApiError(error)} />;
  if (!kind) return <NotFound />;
  const area = kindAddress(kind);
  return (
    <KindDetail
      kind={kind}
      area={kind.namespaced ? area : `${area}/_`}
      listAddress={area}
      parent={kind.kind}
      facts={(object) => [
        [t('common.kind'), `${kind.kind} (${apiVersionOf(kind)})`],
        [t('common.status'), statusOf(object)],
        [t('common.uid'), object.metadata.uid],
      ]}
    />
  );
}
