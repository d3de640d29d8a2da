/**
 * How much of an answer to show at a moment, when it arrives in whole sentences: words at a steady
 * rate that is never more than about a second behind. Pure: time is an argument.
 */

const LAG_MS = 900; // what has arrived is on screen within this time
const LEAST_LAG_MS = 150; // and not at once, so that words that come one by one still flow
const LAG_GAPS = 1.2; // of the times between two arrivals: sentences come rarely, single tokens need not wait
const FADE = 0.8;
const SLOWEST = 0.03; // characters per millisecond: slower than this looks like a fault
const WORD = 24; // longer runs without a space (code, Chinese) are cut anywhere

export interface Pace {
  shown: number; // characters, with fraction
  total: number;
  rate: number; // characters per millisecond
  atMs: number;
  grewMs: number; // when text came last
  gapMs: number; // how far apart it comes lately, at most
}

export const START: Pace = { shown: 0, total: 0, rate: SLOWEST, atMs: 0, grewMs: 0, gapMs: LAG_MS / FADE };

/** More text has arrived. */
export function arrive(pace: Pace, total: number, nowMs: number): Pace {
  const now = total < pace.shown ? { ...START, atMs: nowMs } : advance(pace, nowMs);
  if (total === now.total) return now;
  const gapMs = Math.max(nowMs - now.grewMs, FADE * now.gapMs);
  const lagMs = Math.min(LAG_MS, Math.max(LEAST_LAG_MS, LAG_GAPS * gapMs));
  return { ...now, total, grewMs: nowMs, gapMs: Math.min(LAG_MS, gapMs), rate: Math.max(SLOWEST, (total - now.shown) / lagMs) };
}

const BEAT_MS = 12; // every other frame is free for scrolling
const QUICK_MS = 20; // it took no frame but its own
const REST_TIMES = 5;
const LONGEST_REST_MS = 250; // longer looks like a fault

/** How long to wait after a change, when it took so long until the next frame: script, layout and paint together. */
export function restMs(tookMs: number): number {
  return tookMs <= QUICK_MS ? BEAT_MS : Math.min(LONGEST_REST_MS, tookMs * REST_TIMES);
}

/** Time has passed. */
export function advance(pace: Pace, nowMs: number): Pace {
  const passed = Math.max(0, nowMs - pace.atMs);
  return { ...pace, atMs: nowMs, shown: Math.min(pace.total, pace.shown + pace.rate * passed) };
}

/** Where to cut the text: at a whole word, and never inside a surrogate pair. */
export function cutAt(text: string, shown: number): number {
  let end = Math.min(text.length, Math.floor(shown));
  if (end === text.length) return end;
  const space = Math.max(text.lastIndexOf(" ", end), text.lastIndexOf("\n", end));
  if (space >= end - WORD) return Math.max(0, space);
  const unit = text.charCodeAt(end - 1);
  if (unit >= 0xd800 && unit <= 0xdbff) end -= 1;
  return end;
}
