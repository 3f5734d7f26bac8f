import { expect, it } from 'vitest';
import { pathAbove } from './yamlPath';

const text = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: web
spec:
  template:
    spec:
      domain:
        devices:
          disks:
          - name: root
            disk:
              bus: virtio
          - name: data
            x
      networks:
        - name: default
          x
x`.split('\n');

it.each([
  ['a field of the root', 18, 0, []],
  ['a field of metadata', 3, 2, ['metadata']],
  ['a field of an element', 14, 12, ['spec', 'template', 'spec', 'domain', 'devices', 'disks', '[]']],
  ['a field inside an element', 12, 14, ['spec', 'template', 'spec', 'domain', 'devices', 'disks', '[]', 'disk']],
  ['a field of an element that is indented', 17, 10, ['spec', 'template', 'spec', 'networks', '[]']],
  ['a field beside networks', 15, 6, ['spec', 'template', 'spec']],
])('%s', (_, line, indent, expected) => {
  expect(pathAbove(text, line, indent)).toEqual(expected);
});
