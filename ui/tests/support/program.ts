import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const run = promisify(execFile);

/** The program under test: `CROFT_BIN`, or the one of the target directory. */
export function binary(): string {
  const path = process.env['CROFT_BIN'] ?? join(resolve(root, process.env['CARGO_TARGET_DIR'] ?? 'target'), 'debug/croft');
  if (!existsSync(path)) throw new Error(`no croft at ${path}: build it (cargo build) or set CROFT_BIN`);
  return path;
}

/** The small guest of `make guest`. */
export function guestImage(): string {
  const path = process.env['CROFT_GUEST'] ?? join(dirname(dirname(binary())), 'guest/tiny.qcow2');
  if (!existsSync(path)) throw new Error(`no guest at ${path}: build it (make guest) or set CROFT_GUEST`);
  return path;
}

/** Runs a program to its end; what it printed, or an error with it. */
export async function command(program: string, args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run(program, args, { env: { ...process.env, ...env }, maxBuffer: 2 ** 24, timeout: 240_000 });
  return stdout;
}
