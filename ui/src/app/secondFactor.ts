import { request } from '@/api/client';

/** The second factor of whoever is signed in: a code that an authenticator app shows. */

export interface SecondFactor {
  on: boolean;
  recoveryCodesLeft: number;
}

export interface Offer {
  secret: string;
  /** Rows of squares, `1` for a dark one. */
  qr: string[];
}

export async function secondFactor(): Promise<SecondFactor> {
  const { data } = await request<{ data: { totpEnabled?: boolean; recoveryCodesLeft?: number | null }[] }>('GET', '/v3/users?me=true');
  return { on: data[0]?.totpEnabled ?? false, recoveryCodesLeft: data[0]?.recoveryCodesLeft ?? 0 };
}

/** A key that is in force once a code of it was shown. */
export async function beginSecondFactor(currentPassword: string): Promise<Offer> {
  const { secret, otpauthQr } = await request<{ secret: string; otpauthQr: string[] }>('POST', '/v3/users?action=enabletotp', { currentPassword });
  return { secret, qr: otpauthQr };
}

/** Gives the recovery codes, which the server shows this once. */
export async function confirmSecondFactor(totp: string): Promise<string[]> {
  const { recoveryCodes } = await request<{ recoveryCodes: string[] }>('POST', '/v3/users?action=confirmtotp', { totp });
  return recoveryCodes;
}

export async function endSecondFactor(totp: string): Promise<void> {
  await request('POST', '/v3/users?action=disabletotp', { totp });
}

/** The outline of the dark squares, for an SVG path, with the margin that cameras need around them. */
export function squares(rows: readonly string[], margin: number): string {
  return rows.map((row, y) => [...row].map((square, x) => (square === '1' ? `M${x + margin} ${y + margin}h1v1h-1z` : '')).join('')).join('');
}
