const shape = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/;

/** Whether Kubernetes takes this as the name of a machine, a volume and the like. */
export function isValidName(name: string): boolean {
  return name.length > 0 && name.length <= 63 && shape.test(name);
}

const letters = 'bcdfghjklmnpqrstvwxz2456789';

/** A few letters that make a name unlike others. */
export function randomSuffix(length = 5): string {
  const random = crypto.getRandomValues(new Uint8Array(length));
  return Array.from(random, (byte) => letters[byte % letters.length]).join('');
}

/** Letters and digits for a password that can be typed at a console. */
export function randomPassword(): string {
  return Array.from({ length: 4 }, () => randomSuffix(5)).join('-');
}

export function nameFrom(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 50);
}
