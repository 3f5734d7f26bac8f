/** The server tells both in one, as `v1.34.0+croft0.1.0`. */

export function croftVersion(version: string): string {
  return /\+croft(.+)$/.exec(version)?.[1] ?? '';
}

export function kubernetesVersion(version: string): string {
  return version.replace(/\+.*$/, '');
}
