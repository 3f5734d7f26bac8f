import type { Kind } from '@/api/kinds';
import { useCan, useMay } from '@/api/permissions';
import type { KubeObject } from '@/api/types';
import { useDefaultNamespace } from '@/app/namespace';

/** Whether the user may do this to an object, wherever its kind lives. */
export function useMayDo(verb: string, kind: Kind, object: KubeObject): boolean {
  const can = useCan(object.metadata.namespace ?? '');
  const may = useMay(verb, kind);
  return kind.namespaced ? can(verb, kind, object.metadata.name) : may;
}

/** Whether there is a point in offering to make one. */
export function useMayCreate(kind: Kind): boolean {
  const can = useCan(useDefaultNamespace());
  const may = useMay('create', kind);
  return kind.namespaced ? can('create', kind) : may;
}
