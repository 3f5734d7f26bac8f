import { useMemo, useRef } from 'react';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useInNamespace } from '@/app/namespace';
import type { Joined } from './machine';
import { joinRows } from './machine';

/** All machines of the chosen namespace with their instances. */
export function useMachineRows() {
  const machines = useCollection(kinds.machines);
  const instances = useCollection(kinds.instances);
  const chosen = useInNamespace(machines.items);
  const before = useRef<Joined | undefined>(undefined);
  const rows = useMemo(() => {
    const joined = joinRows(chosen, instances.items, before.current);
    before.current = { machines: chosen, instances: instances.items, rows: joined };
    return joined;
  }, [chosen, instances.items]);
  return { snapshot: machines, rows };
}
