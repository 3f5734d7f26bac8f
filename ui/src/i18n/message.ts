/** A text, or one for each plural form that the language has. `{name}` stands for a value. */
export type Message = string | Plural;
export type Plural = { other: string } & Partial<Record<Intl.LDMLPluralRule, string>>;

export type Dictionary = Record<string, Record<string, Message>>;

/** The keys of a dictionary as `area.key`. */
export type KeyOf<D> = { [Area in keyof D & string]: `${Area}.${keyof D[Area] & string}` }[keyof D & string];

/** Another language has exactly the keys that English has. */
export type Translation<D> = { [Area in keyof D]: TranslatedArea<D[Area]> };
export type TranslatedArea<A> = { [Key in keyof A]: A[Key] extends string ? string : Plural };

export type Values = Record<string, string | number>;

export function fill(message: Message, language: string, values: Values = {}): string {
  const text = typeof message === 'string' ? message : chosen(message, language, values['count']);
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? new Intl.NumberFormat(language).format(value) : value;
  });
}

function chosen(message: Plural, language: string, count: string | number | undefined): string {
  const rule = new Intl.PluralRules(language).select(Number(count ?? 0));
  return message[rule] ?? message.other;
}
