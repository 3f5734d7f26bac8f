import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Plugin } from 'vite';

const packable = /\.(js|css|html|svg|json|txt)$/;

/** Puts a `.br` and a `.gz` beside each asset, so that the server never compresses while somebody waits. */
export function compress(directory: string): Plugin {
  return {
    name: 'croft-compress',
    apply: 'build',
    async closeBundle() {
      const entries = await readdir(directory, { recursive: true, withFileTypes: true });
      const files = entries.filter((entry) => entry.isFile() && packable.test(entry.name));
      await Promise.all(files.map((file) => pack(join(file.parentPath, file.name))));
    },
  };
}

async function pack(path: string): Promise<void> {
  const content = await readFile(path);
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
  await writeFile(`${path}.br`, await promisify(brotliCompress)(content, quality));
  await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: constants.Z_BEST_COMPRESSION }));
}
