/** What the browser keeps: drafts, messages that wait, looks. Never replies, never secrets. */

export const PREFIX = "tertulia.";
const PERSONAL = ["drafts", "branches", "marks"];
const MOST_ENTRIES = 200; // drafts of that many conversations

let forgotten = false; // of a person who has signed out nothing is written down any more

export function recall<T>(name: string, fallback: T): T {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback; // storage may be off, or hold something old
  }
}

export function remember(name: string, value: unknown): void {
  if (forgotten) return;
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Full or switched off: the page works without it.
  }
}

/** A bounded record in storage: the oldest entries make room. */
export function rememberIn(name: string, key: string, value: unknown): void {
  const record = recall<Record<string, unknown>>(name, {});
  delete record[key];
  if (value !== null) record[key] = value;
  const keys = Object.keys(record);
  for (const old of keys.slice(0, Math.max(0, keys.length - MOST_ENTRIES))) delete record[old];
  remember(name, record);
}

export function recallFrom<T>(name: string, key: string, fallback: T): T {
  const value = recall<Record<string, unknown>>(name, {})[key];
  return value === undefined ? fallback : (value as T);
}

/** Signing out leaves no text of the person in the browser. The page starts anew after this. */
export function forgetPerson(): void {
  forgotten = true;
  for (const name of Object.keys(localStorage)) {
    if (PERSONAL.some((kind) => name.startsWith(PREFIX + kind))) localStorage.removeItem(name);
  }
}
