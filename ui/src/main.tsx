import '@mantine/core/styles.css';
import '@mantine/notifications/styles.css';
import './app/global.css';
import { createRoot } from 'react-dom/client';
import { startLanguage } from '@/i18n';
import { App } from './app/App';
import { resumeSession } from './app/session';

async function start(): Promise<void> {
  const root = document.getElementById('root');
  if (!root) throw new Error('the page has no root element');
  await Promise.all([startLanguage(), resumeSession()]);
  createRoot(root).render(<App />);
}

void start();
