import { Menu } from '@mantine/core';
import { IconStar } from '@tabler/icons-react';
import { useCollection } from '@/api/collections';
import type { StorageClass } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { imageOf, isDefault, makeDefault } from './storageClass';

export function ClassItems({ storageClass }: { storageClass: StorageClass }) {
  const may = useMay('update', kinds.storageClasses);
  const all = useCollection(kinds.storageClasses).items;
  const { name } = storageClass.metadata;
  if (!may || isDefault(storageClass) || imageOf(storageClass)) return null;
  const choose = () =>
    ask({
      title: t('storageClasses.makeDefaultTitle', { name }),
      body: t('storageClasses.makeDefaultHelp'),
      confirm: t('storageClasses.makeDefault'),
      run: () => makeDefault(storageClass, all),
    });
  return <Menu.Item leftSection={<IconStar size={16} />} onClick={choose}>{t('storageClasses.makeDefault')}</Menu.Item>;
}
