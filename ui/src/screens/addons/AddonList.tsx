import { IconPuzzle } from '@tabler/icons-react';
import { useMemo } from 'react';
import type { Addon } from '@/api/cluster';
import { keyOf } from '@/api/collection';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { ObjectMenu } from '@/parts/kind/ObjectMenu';
import { PageHead } from '@/parts/Page';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { helpOf, isExperimental, stateOf, titleOf } from './addon';
import { AddonItems } from './AddonActions';

export function Screen() {
  // Add-ons live in namespaces that mean nothing to people: all of them are shown.
  const snapshot = useCollection(kinds.addons);
  const columns = useMemo(() => addonColumns(), []);
  return (
    <>
      <PageHead title={t('addons.title')} />
      <DataTable
        id="addons"
        snapshot={snapshot}
        rows={snapshot.items}
        columns={columns}
        keyOf={keyOf}
        nameOf={titleOf}
        defaultSort={{ column: 'name', descending: false }}
        empty={<Blank icon={IconPuzzle} title={t('common.empty')} />}
        menu={rowMenu}
      />
    </>
  );
}

const rowMenu = (addon: Addon) => <ObjectMenu kind={kinds.addons} object={addon} address={objectAddress('/addons', addon)}>{() => <AddonItems addon={addon} />}</ObjectMenu>;

function addonColumns(): Column<Addon>[] {
  return [
    nameColumn('/addons', titleOf),
    { id: 'state', title: t('common.state'), value: (addon) => stateOf(addon).label, cell: (addon) => <StatusBadge {...stateOf(addon)} />, width: 'minmax(150px, 1fr)', phone: true },
    { id: 'help', title: t('addons.what'), value: helpOf, width: 'minmax(220px, 3fr)' },
    { id: 'version', title: t('addons.version'), value: (addon) => addon.spec.version, width: '110px' },
    { id: 'experimental', title: t('addons.experimental'), value: (addon) => (isExperimental(addon) ? t('common.yes') : ''), width: '130px' },
    { ...namespaceColumn<Addon>(), hidden: true },
  ];
}
