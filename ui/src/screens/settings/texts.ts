import type { Key } from '@/i18n';
import { t } from '@/i18n';
import { en } from '@/i18n/en';

/** What a setting does; nothing for one that only this server has. */
export function helpOf(name: string): string {
  return name in en.settingHelp ? t(`settingHelp.${name}` as Key) : '';
}

/** What a field of a setting is called; its own name if the page does not know it. */
export function fieldLabel(name: string): string {
  return name in en.settingFields ? t(`settingFields.${name}` as Key) : name;
}
