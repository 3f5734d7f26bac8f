import type { Server } from './server.ts';
import { binary, command, guestImage } from './program.ts';

export const machinesPath = '/apis/kubevirt.io/v1/namespaces/default/virtualmachines';
export const imagesPath = '/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages';
export const claimsPath = '/api/v1/namespaces/default/persistentvolumeclaims';

/** The password of root in the guests that are made here. */
export const guestPassword = 'turnip-7';

/** Has the image of the small guest on the server, as `default/tiny`. */
export async function haveImage(server: Server): Promise<void> {
  if (await server.api.exists(`${imagesPath}/tiny`)) return;
  await command(binary(), ['image', 'upload', 'tiny', guestImage()], { KUBECONFIG: server.kubeconfig });
}

/** A machine without disks that is off: it costs nothing and can be looked at. */
export function empty(name: string, more: { labels?: Record<string, string>; annotations?: Record<string, string>; runStrategy?: string } = {}): object {
  return {
    apiVersion: 'kubevirt.io/v1',
    kind: 'VirtualMachine',
    metadata: { name, namespace: 'default', labels: more.labels ?? {}, annotations: more.annotations ?? {} },
    spec: {
      runStrategy: more.runStrategy ?? 'Halted',
      template: {
        spec: {
          terminationGracePeriodSeconds: 0,
          domain: {
            memory: { guest: '64Mi' },
            resources: { requests: { cpu: '1m' }, overcommitGuestOverhead: true },
            devices: { autoattachPodInterface: false },
          },
        },
      },
    },
  };
}

/** The small guest with a root disk, cloud-init and an address; root has `guestPassword`. */
export function guest(name: string, { running = true, cores = 1, memory = '192Mi' } = {}): object {
  const claim = {
    metadata: { name: `${name}-root`, annotations: { 'harvesterhci.io/imageId': 'default/tiny' } },
    spec: { accessModes: ['ReadWriteMany'], volumeMode: 'Block', storageClassName: 'longhorn-tiny', resources: { requests: { storage: '1Gi' } } },
  };
  const userData = `#cloud-config\npassword: ${guestPassword}\nchpasswd: {expire: false}\nssh_pwauth: true\n`;
  return {
    apiVersion: 'kubevirt.io/v1',
    kind: 'VirtualMachine',
    metadata: { name, namespace: 'default', annotations: { 'harvesterhci.io/volumeClaimTemplates': JSON.stringify([claim]) } },
    spec: {
      runStrategy: running ? 'RerunOnFailure' : 'Halted',
      template: {
        spec: {
          terminationGracePeriodSeconds: 5,
          domain: {
            cpu: { cores },
            memory: { guest: memory },
            devices: {
              disks: [
                { name: 'root', bootOrder: 1, disk: { bus: 'virtio' } },
                { name: 'seed', disk: { bus: 'virtio' } },
              ],
              interfaces: [{ name: 'default', masquerade: {} }],
            },
          },
          networks: [{ name: 'default', pod: {} }],
          volumes: [
            { name: 'root', persistentVolumeClaim: { claimName: `${name}-root` } },
            { name: 'seed', cloudInitNoCloud: { userData } },
          ],
        },
      },
    },
  };
}

/** Makes the object unless it is there. */
export async function have(server: Server, path: string, object: object): Promise<void> {
  const answer = await server.api.send('POST', path, object);
  if (answer.status !== 409 && answer.status >= 300) throw new Error(`${path}: ${answer.status} ${answer.text}`);
}
