/** Kubernetes quantities: "2Gi", "500m", "1.5", "1e3". */

const factors: Record<string, number> = {
  '': 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};
const shape = /^([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/;

/** The number that a quantity stands for, or undefined if it is none. */
export function parseQuantity(text: string | number | undefined | null): number | undefined {
  if (text === undefined || text === null) return undefined;
  const match = shape.exec(String(text).trim());
  const factor = match ? factors[match[2] ?? ''] : undefined;
  return match && factor !== undefined ? Number(match[1]) * factor : undefined;
}

const binary = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** These are dear to make, and tables want one for each row. */
const formats = new Map<string, Intl.NumberFormat>();
function numberFormat(language: string, digits: number): Intl.NumberFormat {
  const key = `${language} ${digits}`;
  const known = formats.get(key) ?? new Intl.NumberFormat(language, { maximumFractionDigits: digits });
  formats.set(key, known);
  return known;
}

/** For people: 1610612736 is "1.5 GiB". */
export function formatBytes(bytes: number | undefined, language = 'en'): string {
  if (bytes === undefined || !Number.isFinite(bytes)) return '–';
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1024 && unit < binary.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = value < 10 && unit > 0 ? 1 : 0;
  const number = numberFormat(language, digits).format(bytes < 0 ? -value : value);
  return `${number} ${binary[unit]}`;
}

/** For the API: whole GiB or MiB where they fit, else bytes. */
export function binaryQuantity(bytes: number): string {
  for (const [suffix, factor] of [['Ti', 2 ** 40], ['Gi', 2 ** 30], ['Mi', 2 ** 20], ['Ki', 2 ** 10]] as const) {
    if (bytes >= factor && bytes % factor === 0) return `${bytes / factor}${suffix}`;
  }
  return String(Math.round(bytes));
}
