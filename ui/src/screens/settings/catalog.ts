/** What the page knows of Harvester's settings: docs/settings.md says the same in words. */

export type Effect = 'works' | 'clients' | 'stored';

/** What a part of a value is, and with that how it is edited. */
export type Part =
  | { type: 'text'; secret?: boolean }
  | { type: 'lines'; secret?: boolean }
  | { type: 'switch' }
  | { type: 'number'; min?: number; max?: number; decimal?: boolean; unit?: Unit }
  | { type: 'choice'; options: readonly string[] }
  /** Several texts; in an object an array, else separated by commas. */
  | { type: 'list' };

export type Unit = 'percent' | 'minutes' | 'seconds' | 'hours' | 'mebibytes';

export type Shape = Part | { type: 'fields'; fields: Readonly<Record<string, Part>> } | { type: 'json' };

export interface SettingInfo {
  effect: Effect;
  shape: Shape;
  readOnly?: boolean;
}

const text: Part = { type: 'text' };
const toggle: Part = { type: 'switch' };
const list: Part = { type: 'list' };
const json: Shape = { type: 'json' };
const fields = (parts: Readonly<Record<string, Part>>): Shape => ({ type: 'fields', fields: parts });
const number = (limits: Omit<Extract<Part, { type: 'number' }>, 'type'>): Part => ({ type: 'number', ...limits });
const network = fields({ clusterNetwork: text, vlan: number({ min: 0, max: 4094 }), range: text, exclude: list, exclusiveVlan: toggle });

const works = (shape: Shape): SettingInfo => ({ effect: 'works', shape });
const clients = (shape: Shape): SettingInfo => ({ effect: 'clients', shape });
const stored = (shape: Shape): SettingInfo => ({ effect: 'stored', shape });

export const catalog: Readonly<Record<string, SettingInfo>> = {
  'additional-ca': works({ type: 'lines' }),
  'additional-guest-memory-overhead-ratio': works(number({ min: 0, max: 10, decimal: true })),
  'api-ui-version': clients(text),
  'auto-disk-provision-paths': works(list),
  'auto-rotate-rke2-certs': works(fields({ enable: toggle, expiringInHours: number({ min: 1, max: 8759, unit: 'hours' }) })),
  'backup-target': works(
    fields({
      type: { type: 'choice', options: ['nfs', 's3'] },
      endpoint: text,
      bucketName: text,
      bucketRegion: text,
      accessKeyId: text,
      secretAccessKey: { type: 'text', secret: true },
      cert: { type: 'lines' },
      virtualHostedStyle: toggle,
    }),
  ),
  'cluster-pod-security-standard': stored(fields({ enabled: toggle, whitelistedNamespacesList: text, privilegedNamespacesList: text, restrictedNamespacesList: text })),
  'cluster-registration-url': stored(fields({ url: text, insecureSkipTLSVerify: toggle })),
  'containerd-registry': stored(json),
  'csi-driver-config': clients(json),
  'csi-online-expand-validation': works(json),
  'default-storage-class': clients(text),
  'default-vm-termination-grace-period-seconds': works(number({ min: 0, unit: 'seconds' })),
  'harvester-csi-ccm-versions': clients(json),
  'http-proxy': works(fields({ httpProxy: text, httpsProxy: text, noProxy: text })),
  'instance-manager-resources': stored(json),
  'kubeconfig-default-token-ttl-minutes': works(number({ min: 0, unit: 'minutes' })),
  'kubevirt-migration': stored(json),
  'log-level': works({ type: 'choice', options: ['panic', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] }),
  'longhorn-v2-data-engine-enabled': stored(toggle),
  'longhorn-v2-data-engine-hugepage-enabled': stored(toggle),
  'longhorn-v2-data-engine-memory-size': stored(number({ min: 2, unit: 'mebibytes' })),
  'max-hotplug-ratio': works(number({ min: 1, max: 20 })),
  'ntp-servers': works(fields({ ntpServers: list })),
  'overcommit-config': works(
    fields({ cpu: number({ min: 100, unit: 'percent' }), memory: number({ min: 100, unit: 'percent' }), storage: number({ min: 100, unit: 'percent' }) }),
  ),
  'rancher-cluster': stored(fields({ removeUpstreamClusterWhenNamespaceIsDeleted: toggle })),
  'release-download-url': clients(text),
  'rwx-network': stored(json),
  'server-version': { effect: 'works', shape: text, readOnly: true },
  'ssl-certificates': works(fields({ publicCertificate: { type: 'lines' }, privateKey: { type: 'lines', secret: true }, ca: { type: 'lines' } })),
  'ssl-parameters': works(fields({ protocols: text, ciphers: text })),
  'storage-network': stored(network),
  'support-bundle-expiration': works(number({ min: 0, unit: 'minutes' })),
  'support-bundle-file-name': works(text),
  'support-bundle-image': clients(fields({ repository: text, tag: text, imagePullPolicy: { type: 'choice', options: ['Always', 'IfNotPresent', 'Never'] } })),
  'support-bundle-namespaces': clients(list),
  'support-bundle-node-collection-timeout': works(number({ min: 0, unit: 'minutes' })),
  'support-bundle-timeout': works(number({ min: 0, unit: 'minutes' })),
  'traefik-default-tls-options': stored(json),
  'ui-index': clients(text),
  'ui-path': clients(text),
  'ui-plugin-bundled-version': clients(text),
  'ui-plugin-index': clients(text),
  'ui-source': clients({ type: 'choice', options: ['auto', 'external', 'bundled'] }),
  'upgradable-versions': clients(list),
  'upgrade-checker-enabled': stored(toggle),
  'upgrade-checker-url': stored(text),
  'upgrade-config': stored(json),
  'vip-pools': stored(json),
  'vm-force-reset-policy': stored(fields({ enable: toggle, period: number({ min: 1, unit: 'seconds' }), vmMigrationTimeout: number({ min: 0, unit: 'seconds' }) })),
  'vm-migration-network': stored(network),
  'volume-snapshot-class': clients(text),
};

/** A setting of another name is kept by the server and edited as text. */
export function infoOf(name: string): SettingInfo {
  return catalog[name] ?? clients(text);
}
