import { Button } from '@mantine/core';
import { IconDownload } from '@tabler/icons-react';
import type { SupportBundle } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { downloadAddress, isReady } from './bundle';
import { BundleState } from './SupportList';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.supportBundles}
      area="/support"
      parent={t('support.title')}
      meta={meta}
      facts={(bundle) => [
        [t('common.description'), bundle.spec.description],
        [t('support.issue'), bundle.spec.issueURL],
        [t('support.file'), bundle.status?.filename],
        [t('common.size'), bundle.status?.filesize !== undefined && formatBytes(bundle.status.filesize, language())],
      ]}
      actions={actions}
    />
  );
}

const meta = (bundle: SupportBundle) => <BundleState bundle={bundle} />;
const actions = (bundle: SupportBundle) => isReady(bundle) && <Button component="a" href={downloadAddress(bundle)} download leftSection={<IconDownload size={17} />}>{t('common.download')}</Button>;
