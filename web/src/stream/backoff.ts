/** How long to wait before the next try. Pure: chance is an argument. */

const QUICK_TRIES = 3;
const QUICK_MS = 400; // a server that restarts is usually back within a second
const LONGEST_MS = 10_000;

/** Milliseconds before try number `failures + 1`; `dice` in [0, 1) spreads a crowd of pages. */
export function waitMs(failures: number, dice: number, serverMs = 0): number {
  const cap =
    failures <= QUICK_TRIES
      ? QUICK_MS * failures
      : Math.min(LONGEST_MS, 1_000 * 2 ** (failures - QUICK_TRIES));
  const jittered = cap * (0.5 + dice / 2);
  return Math.round(Math.max(jittered, Math.min(serverMs, LONGEST_MS) * (0.5 + dice / 2)));
}
