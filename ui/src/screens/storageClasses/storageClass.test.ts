import { expect, it } from 'vitest';
import { classObject, emptyClass, imageOf, isDefault, isReserved } from './storageClass';

it('builds a class', () => {
  const built = classObject({ ...emptyClass, name: 'fast', diskTags: ['ssd', 'nvme'], reclaimPolicy: 'Retain' });
  expect(built).toMatchObject({ metadata: { name: 'fast' }, provisioner: 'driver.longhorn.io', reclaimPolicy: 'Retain', parameters: { diskSelector: 'ssd,nvme' }, allowVolumeExpansion: true });
});

it('says nothing of Longhorn for another provisioner', () => {
  expect(classObject({ ...emptyClass, name: 'plain', provisioner: 'local.croft.io' }).parameters).toBeUndefined();
});

it('reads what a class is', () => {
  const metadata = { name: 'c', annotations: { 'storageclass.kubernetes.io/is-default-class': 'true', 'harvesterhci.io/is-reserved-storageclass': 'true', 'harvesterhci.io/imageId': 'default/tiny' } };
  expect([isDefault({ metadata }), isReserved({ metadata }), imageOf({ metadata })]).toEqual([true, true, 'default/tiny']);
  expect([isDefault({ metadata: { name: 'c' } }), isReserved({ metadata: { name: 'c' } })]).toEqual([false, false]);
});
