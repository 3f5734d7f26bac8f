import { describe, expect, it } from 'vitest';
import { catalog } from './catalog';
import { compact, fieldFrom, isChanged, pretty, problemOf, readFields, textFrom, writeFields } from './value';

const setting = (value?: string, preset = 'info') => ({ metadata: { name: 'log-level' }, value, default: preset });

describe('values of settings', () => {
  it('are changed only if they differ from the default', () => {
    expect(isChanged(setting())).toBe(false);
    expect(isChanged(setting(''))).toBe(false);
    expect(isChanged(setting('info'))).toBe(false);
    expect(isChanged(setting('debug'))).toBe(true);
  });

  it('keep fields that the editor does not know', () => {
    const before = readFields('{"cpu":1000,"future":1}') ?? {};
    expect(writeFields(before, { cpu: 800, memory: 150 })).toBe('{"cpu":800,"future":1,"memory":150}');
  });

  it('leave out what is empty and was not there', () => {
    expect(writeFields({}, { httpProxy: '', noProxy: '' })).toBe('');
    expect(writeFields({ httpProxy: 'http://a' }, { httpProxy: '' })).toBe('{"httpProxy":""}');
    expect(writeFields({}, { ntpServers: [] })).toBe('');
  });

  it('fall back to text where they are no object', () => {
    expect(readFields('https://rancher.example/import.yaml')).toBeNull();
    expect(readFields('[1]')).toBeNull();
    expect(readFields('')).toEqual({});
  });

  it('become fields and texts again', () => {
    expect(fieldFrom({ type: 'switch' }, 'true')).toBe(true);
    expect(fieldFrom({ type: 'number' }, '120')).toBe(120);
    expect(fieldFrom({ type: 'number' }, '')).toBe('');
    expect(fieldFrom({ type: 'list' }, '/dev/sd*, /dev/vd*')).toEqual(['/dev/sd*', '/dev/vd*']);
    expect(textFrom(['a', 'b'])).toBe('a,b');
    expect(textFrom(false)).toBe('false');
  });

  it('are shown with line breaks and kept without', () => {
    expect(compact(pretty('{"a":{"b":1}}'))).toBe('{"a":{"b":1}}');
    expect(pretty('info')).toBe('info');
    expect(compact('5')).toBe('5');
  });

  it('say why JSON cannot be read', () => {
    expect(problemOf({ type: 'json' }, '{"a":')).not.toBeNull();
    expect(problemOf({ type: 'json' }, '')).toBeNull();
    expect(problemOf({ type: 'text' }, '{')).toBeNull();
  });

  it('have a shape for each of Harvester’s settings', () => {
    expect(Object.keys(catalog)).toHaveLength(52);
  });
});
