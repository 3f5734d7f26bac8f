import { fileURLToPath } from 'node:url';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';
import { compress } from './vite/compress.ts';

const dist = fileURLToPath(new URL('dist', import.meta.url));

// `npm run dev` shows the page of the sources with the data of a running server.
const server = process.env['CROFT_URL'] ?? 'https://127.0.0.1:6443';
const proxied = ['/api', '/apis', '/v1', '/v3', '/v3-public', '/croft', '/openapi', '/version', '/healthz', '/readyz'];

export default defineConfig({
  base: '/dashboard/',
  resolve: { alias: { '@': fileURLToPath(new URL('src', import.meta.url)) } },
  plugins: [react(), compress(dist)],
  build: {
    outDir: dist,
    target: 'es2022',
    // A data: URL would need an exception in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1200,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            // Otherwise each part that a screen shares with the start is a file of its own: a hundred requests before the
            // first screen, and less for the compressor to find.
            { name: 'start', tags: ['$initial'] },
          ],
        },
      },
    },
  },
  server: {
    proxy: Object.fromEntries(
      proxied.map((path) => [`^${path}(/|\\?|$)`, { target: server, changeOrigin: true, secure: false, ws: true }]),
    ),
  },
});
