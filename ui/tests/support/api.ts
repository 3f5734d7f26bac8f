import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { parse } from 'yaml';

export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  json: unknown;
}

interface Kubeconfig {
  clusters: { cluster: { server: string; 'certificate-authority-data': string } }[];
  users: { user: { 'client-certificate-data': string; 'client-key-data': string } }[];
}

/** The API as the administrator with the kubeconfig sees it: what tests prepare and check without the page. */
export class Api {
  private constructor(
    readonly url: string,
    private readonly agent: Agent,
  ) {}

  static fromKubeconfig(path: string): Api {
    const { clusters, users } = parse(readFileSync(path, 'utf8')) as Kubeconfig;
    const [cluster, user] = [clusters[0]?.cluster, users[0]?.user];
    if (!cluster || !user) throw new Error(`${path} has no cluster or no user`);
    const pem = (data: string) => Buffer.from(data, 'base64');
    const agent = new Agent({
      keepAlive: true,
      ca: pem(cluster['certificate-authority-data']),
      cert: pem(user['client-certificate-data']),
      key: pem(user['client-key-data']),
    });
    return new Api(cluster.server.replace(/\/$/, ''), agent);
  }

  send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const typed = content === undefined ? headers : { 'Content-Type': 'application/json', ...headers };
    return new Promise((resolve, reject) => {
      const call = request(`${this.url}${path}`, { method, agent: this.agent, headers: { Accept: 'application/json', ...typed } }, (response) => {
        const pieces: Buffer[] = [];
        response.on('data', (piece: Buffer) => pieces.push(piece));
        response.on('error', reject);
        response.on('end', () => {
          const text = Buffer.concat(pieces).toString();
          resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json: parsed(text) });
        });
      });
      call.on('error', reject);
      call.end(content);
    });
  }

  /** The object or list at a path; anything but success fails the test. */
  async get<T = unknown>(path: string): Promise<T> {
    return this.ok<T>(await this.send('GET', path), path);
  }

  async create<T = unknown>(path: string, object: unknown): Promise<T> {
    return this.ok<T>(await this.send('POST', path, object), path);
  }

  async patch<T = unknown>(path: string, patch: unknown): Promise<T> {
    return this.ok<T>(await this.send('PATCH', path, patch, { 'Content-Type': 'application/merge-patch+json' }), path);
  }

  async delete<T = unknown>(path: string): Promise<T> {
    return this.ok<T>(await this.send('DELETE', path), path);
  }

  async exists(path: string): Promise<boolean> {
    const { status } = await this.send('GET', path);
    return status === 200;
  }

  close(): void {
    this.agent.destroy();
  }

  private ok<T>(answer: Answer, path: string): T {
    if (answer.status >= 200 && answer.status < 300) return answer.json as T;
    throw new Error(`${path}: ${answer.status} ${answer.text}`);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
