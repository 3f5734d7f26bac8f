import type { Setting } from '@/api/harvester';
import { isRecord } from '@/api/types';
import type { Part, Shape } from './catalog';

/** Values of settings are texts; these are what the fields of the editor make of them, and back. */

export type FieldValue = string | number | boolean | string[];

export function effectiveValue(setting: Setting): string {
  return setting.value || setting.default || '';
}

export function isChanged(setting: Setting): boolean {
  return setting.value !== undefined && setting.value !== '' && setting.value !== (setting.default ?? '');
}

/** The fields of an object, or null if the text is none: then it is edited as it is. */
export function readFields(value: string): Record<string, unknown> | null {
  if (value.trim() === '') return {};
  try {
    const parsed: unknown = JSON.parse(value);
    return isRecord(parsed) ? parsed : null;
  } catch {
    return null;
  }
}

/** What is not among the known fields stays as it was; what is empty is left out unless it was there before. */
export function writeFields(before: Record<string, unknown>, changes: Record<string, FieldValue>): string {
  const result: Record<string, unknown> = { ...before };
  for (const [name, value] of Object.entries(changes)) {
    const empty = value === '' || (Array.isArray(value) && value.length === 0);
    if (empty && !(name in before)) delete result[name];
    else result[name] = value;
  }
  return Object.keys(result).length === 0 ? '' : JSON.stringify(result);
}

export function fieldFrom(part: Part, raw: unknown): FieldValue {
  switch (part.type) {
    case 'switch':
      return raw === true || raw === 'true';
    case 'number':
      return typeof raw === 'number' ? raw : raw === undefined || raw === '' ? '' : Number(raw);
    case 'list':
      if (Array.isArray(raw)) return raw.map(String);
      return typeof raw === 'string' ? raw.split(',').map((each) => each.trim()).filter(Boolean) : [];
    default:
      return typeof raw === 'string' ? raw : raw === undefined || raw === null ? '' : JSON.stringify(raw);
  }
}

export function textFrom(value: FieldValue): string {
  return Array.isArray(value) ? value.join(',') : String(value);
}

/** Why a text cannot be a value of this shape; the server looks closer. */
export function problemOf(shape: Shape, value: string): string | null {
  if (shape.type !== 'json' || value.trim() === '') return null;
  try {
    JSON.parse(value);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** JSON with line breaks, for reading and editing. */
export function pretty(value: string): string {
  try {
    const parsed: unknown = JSON.parse(value);
    return typeof parsed === 'object' && parsed !== null ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

/** As the server keeps it: without the line breaks of the editor. */
export function compact(value: string): string {
  try {
    const parsed: unknown = JSON.parse(value);
    return typeof parsed === 'object' && parsed !== null ? JSON.stringify(parsed) : value;
  } catch {
    return value;
  }
}
