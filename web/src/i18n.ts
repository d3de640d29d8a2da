/** The page's words in the reader's language. A key is the English sentence itself. */

/** The sentence in the reader's language, with `{name}` replaced by the value of that name. */
export function t(key: string, values?: Record<string, string | number>): string {
  if (values === undefined) return key;
  return key.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    return value === undefined ? whole : typeof value === "number" ? value.toLocaleString() : value;
  });
}

/** Marks a sentence of a table that is given to `t` later, so that it is found and translated. */
export function k(key: string): string {
  return key;
}
