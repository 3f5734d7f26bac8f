import { KeptDetail } from './KeptDetail';

export function Screen() {
  return <KeptDetail type="backup" />;
}
