import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The one way from Chromium, in its own network, to servers on this machine (a proxy); there is none to anywhere else. */
export class Line {
  private readonly open = new Set<Socket>();
  private broken = false;

  private constructor(
    private readonly server: Server,
    private readonly directory: string,
  ) {}

  static async start(): Promise<Line> {
    const directory = mkdtempSync(join(tmpdir(), 'croft-line-'));
    const line = new Line(createServer((_, response) => response.writeHead(403).end()), directory);
    line.server.on('connect', (request, socket: Socket) => line.tunnel(request.url ?? '', socket));
    line.server.listen(line.socket);
    await once(line.server, 'listening');
    return line;
  }

  get socket(): string {
    return join(this.directory, 'socket');
  }

  /** Pulls the plug: what is open breaks off, and nothing gets through until it is mended. */
  cut(): void {
    this.broken = true;
    for (const socket of this.open) socket.destroy();
  }

  mend(): void {
    this.broken = false;
  }

  stop(): void {
    this.server.close();
    this.cut();
    rmSync(this.directory, { recursive: true, force: true });
  }

  private tunnel(address: string, inside: Socket): void {
    const [host = '', port = ''] = address.split(':');
    if (host !== '127.0.0.1' || this.broken) {
      inside.end('HTTP/1.1 403 Forbidden\r\n\r\n');
      return;
    }
    const outside = connect(Number(port), host, () => {
      inside.write('HTTP/1.1 200 Connected\r\n\r\n');
      outside.pipe(inside).pipe(outside);
    });
    for (const [socket, other] of [[inside, outside], [outside, inside]] as const) {
      this.open.add(socket);
      // Each side goes with the other, as with a line between them.
      socket.on('error', () => other.destroy());
      socket.on('close', () => {
        this.open.delete(socket);
        other.destroy();
      });
    }
  }
}
