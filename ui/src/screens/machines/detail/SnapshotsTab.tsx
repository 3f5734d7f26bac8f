import { KeptList } from './KeptList';
import type { TabProps } from './MachineDetail';

export function Tab({ row }: TabProps) {
  return <KeptList row={row} type="snapshot" />;
}
