import { Button } from '@mantine/core';
import { IconDownload } from '@tabler/icons-react';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { CopyableCode } from '@/parts/form/Preview';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { saveText } from '@/parts/saveFile';
import { parsePublicKey } from './key';
import { KeyState } from './KeyState';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.keyPairs}
      area="/keys"
      parent={t('keys.title')}
      meta={(pair) => <KeyState pair={pair} />}
      facts={(pair) => [
        [t('common.type'), parsePublicKey(pair.spec.publicKey)?.algorithm],
        [t('keys.comment'), parsePublicKey(pair.spec.publicKey)?.comment],
        [t('keys.fingerprint'), pair.status?.fingerPrint && <code key="fingerprint">{pair.status.fingerPrint}</code>],
      ]}
      body={(pair) => (
        <Card
          title={t('keys.publicKey')}
          actions={<Button size="xs" variant="default" leftSection={<IconDownload size={14} />} onClick={() => saveText(`${pair.metadata.name}.pub`, `${pair.spec.publicKey.trim()}\n`, 'text/plain')}>{t('common.download')}</Button>}
        >
          <CopyableCode text={pair.spec.publicKey.trim()} />
        </Card>
      )}
      deleteHelp={t('keys.deleteHelp')}
    />
  );
}
