import { request } from '@/api/client';
import { saveText } from '@/parts/saveFile';

/** Has the server make a kubeconfig with a token of its own, and saves it. */
export async function downloadKubeconfig(): Promise<void> {
  const { config } = await request<{ config: string }>('POST', '/v1/management.cattle.io.clusters/local?action=generateKubeconfig', {});
  saveText('croft.kubeconfig', config, 'application/yaml');
}
