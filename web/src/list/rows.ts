/**
 * The list of conversations as rows of known heights, so that of thousands only those in the window are drawn.
 * Pure: time, heights and the window are arguments.
 */
import { k } from "../i18n";
import type { Conversation } from "../wire";

export interface Heading {
  kind: "heading";
  key: string;
  group: string; // to be translated
  height: number;
}

export interface Entry {
  kind: "entry";
  key: string;
  group: string;
  conversation: Conversation;
  height: number;
  place: number; // among all entries, from 1
}

export type Row = Heading | Entry;

/** Heights in pixels. */
export interface Heights {
  heading: number;
  entry: number;
  found: number; // an entry with a snippet
}

const DAY_MS = 86_400_000;

/** Pinned ones first, then by the day of their last turn. A search has one group: its order is the list's. */
export function rowsOf(items: readonly Conversation[], heights: Heights, midnight: number): Row[] {
  const rows: Row[] = [];
  let group = "";
  let place = 0;
  const pinned = items.filter((one) => one.pinned); // one that was pinned a moment ago stands where it was
  for (const conversation of [...pinned, ...items.filter((one) => !one.pinned)]) {
    const name = conversation.pinned ? PINNED : ageOf(Date.parse(conversation.updatedAt), midnight);
    if (name !== group) rows.push({ kind: "heading", key: `${name} before ${conversation.id}`, group: name, height: heights.heading });
    group = name;
    const height = conversation.snippet === undefined ? heights.entry : heights.found;
    rows.push({ kind: "entry", key: conversation.id, group, conversation, height, place: ++place });
  }
  return rows;
}

const PINNED = k("Pinned");

function ageOf(time: number, midnight: number): string {
  if (time >= midnight) return k("Today");
  if (time >= midnight - DAY_MS) return k("Yesterday");
  if (time >= midnight - 7 * DAY_MS) return k("Last seven days");
  if (time >= midnight - 30 * DAY_MS) return k("Last thirty days");
  return k("Older");
}

/** Where each row begins; the last number is the height of all. */
export function offsetsOf(rows: readonly Row[]): number[] {
  const offsets = [0];
  for (const row of rows) offsets.push(offsets[offsets.length - 1]! + row.height);
  return offsets;
}

/** The rows from `first` to before `last` that touch the window, and `more` on both sides of it. */
export function windowOf(offsets: readonly number[], top: number, height: number, more: number): { first: number; last: number } {
  const n = offsets.length - 1;
  if (n <= 0) return { first: 0, last: 0 };
  const first = Math.max(0, rowAt(offsets, top) - more);
  const last = Math.min(n, rowAt(offsets, top + height) + 1 + more);
  return { first, last };
}

/** The row that covers a height, by halving. */
export function rowAt(offsets: readonly number[], at: number): number {
  let low = 0;
  let high = Math.max(0, offsets.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle]! <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The order of the list: pinned first, then the newest; ids break ties. As the store has it. */
export function before(one: Conversation, other: Conversation): boolean {
  if (one.pinned !== other.pinned) return one.pinned;
  if (one.updatedAt !== other.updatedAt) return one.updatedAt > other.updatedAt;
  return one.id > other.id;
}

/**
 * A newly fetched first page over what was held: what the page should have and has not is gone, what lies behind
 * its end is kept.
 */
export function renewed(held: readonly Conversation[], page: readonly Conversation[], isWhole: boolean): Conversation[] {
  const last = page[page.length - 1];
  if (isWhole || last === undefined) return [...page];
  const ids = new Set(page.map((one) => one.id));
  return [...page, ...held.filter((one) => !ids.has(one.id) && before(last, one))];
}
