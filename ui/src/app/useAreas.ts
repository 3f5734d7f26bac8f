import { useQueries } from '@tanstack/react-query';
import { useMemo } from 'react';
import { mayGetQuery } from '@/api/permissions';
import type { Area } from './areas';
import { areas } from './areas';

const paths = [...new Set(areas.flatMap((area) => area.needs ?? []))];

/** The areas that the user may use. Most show what there is for everybody; some are for few. */
export function useAreas(): readonly Area[] {
  const allowed = useQueries({
    queries: paths.map((path) => mayGetQuery(path)),
    combine: (results) => paths.filter((_, index) => results[index]?.data === true).join(' '),
  });
  return useMemo(() => areas.filter((area) => area.needs === undefined || allowed.split(' ').includes(area.needs)), [allowed]);
}
