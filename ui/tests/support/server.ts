import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Api } from './api.ts';
import { binary, command } from './program.ts';

const patienceMs = Number(process.env['CROFT_TEST_PATIENCE_MS'] ?? 60_000);

export interface ServerOptions {
  /** The administrator's password; without one the server makes one up and prints it, as on a real first start. */
  password?: string;
  /** Whether it runs machines. */
  node: boolean;
}

/** The real `croft server` with a temporary directory and a port of its own. */
export class Server {
  private process: ChildProcess | null = null;
  private current: Api | null = null;

  private constructor(
    readonly dataDir: string,
    /** Sockets of guests, which need a short path. */
    private readonly runDir: string,
    private readonly options: ServerOptions,
  ) {}

  static async start(options: ServerOptions): Promise<Server> {
    const server = new Server(mkdtempSync(join(tmpdir(), 'croft-test-')), mkdtempSync('/tmp/croft-'), options);
    try {
      await server.launch('127.0.0.1:0');
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  get api(): Api {
    if (!this.current) throw new Error('the server does not run');
    return this.current;
  }

  get url(): string {
    return this.api.url;
  }

  get kubeconfig(): string {
    return join(this.dataDir, 'kubeconfig');
  }

  get log(): string {
    return readFileSync(this.logFile, 'utf8');
  }

  /** SIGKILL, as a power cut would have it. */
  async kill(): Promise<void> {
    const process = this.process;
    this.process = null;
    if (!process || process.exitCode !== null || process.signalCode !== null) return;
    const ended = once(process, 'exit');
    process.kill('SIGKILL');
    await ended;
  }

  /** Starts it again on the same data and the same address. */
  async restart(): Promise<void> {
    const { host } = new URL(this.url);
    await this.kill();
    await this.launch(host);
  }

  /** Ends it, its guests and its networks, and removes its data. */
  async stop(): Promise<void> {
    await this.kill();
    this.current?.close();
    // Guests outlive the server by design, and so do its network and its mounts.
    if (this.options.node) await command(binary(), ['node', 'reset', '--yes', '--data-dir', this.dataDir, '--run-dir', this.runDir]);
    rmSync(this.dataDir, { recursive: true, force: true });
    rmSync(this.runDir, { recursive: true, force: true });
  }

  private get logFile(): string {
    return join(this.dataDir, 'test.log');
  }

  private async launch(listen: string): Promise<void> {
    const log = openSync(this.logFile, 'a');
    const args = ['server', '--data-dir', this.dataDir, '--listen', listen, '--store', 'embedded', ...this.nodeArgs(), ...this.passwordArgs()];
    this.process = spawn(binary(), args, { stdio: ['ignore', log, log] });
    closeSync(log);
    this.current?.close();
    this.current = await this.ready(this.process);
  }

  private nodeArgs(): string[] {
    return this.options.node ? ['--node-listen=127.0.0.1:0', `--run-dir=${this.runDir}`] : ['--no-node'];
  }

  private passwordArgs(): string[] {
    const { password } = this.options;
    if (password === undefined) return [];
    const file = join(this.dataDir, 'test.password');
    writeFileSync(file, password, { mode: 0o600 });
    return [`--admin-password-file=${file}`];
  }

  private async ready(process: ChildProcess): Promise<Api> {
    const deadline = Date.now() + patienceMs;
    let last: unknown = 'there is no kubeconfig';
    while (Date.now() < deadline) {
      if (process.exitCode !== null) break;
      try {
        if (existsSync(this.kubeconfig)) {
          const api = Api.fromKubeconfig(this.kubeconfig);
          await api.get('/readyz');
          await api.get('/api/v1/namespaces');
          return api;
        }
      } catch (error) {
        last = error;
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`croft is not ready (${String(last)}); its log ends:\n${this.log.split('\n').slice(-40).join('\n')}`);
  }
}
