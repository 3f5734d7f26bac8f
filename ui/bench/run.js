import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

// Node runs TypeScript by itself only since 22.18; Vite is here anyway.
await runnerImport(fileURLToPath(new URL('main.ts', import.meta.url)), { logLevel: 'error' });
