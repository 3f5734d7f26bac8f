import { KeptDetail } from '@/screens/backups/KeptDetail';

export function Screen() {
  return <KeptDetail type="snapshot" />;
}
