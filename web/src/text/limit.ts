/** How long a message may be, told before it is sent. Pure. */

/** Bytes as UTF-8, or null for a text that is surely short enough: no character takes more than three bytes a unit. */
export function bytesOver(text: string, limit: number): number | null {
  if (text.length * 3 <= limit) return null;
  const bytes = new TextEncoder().encode(text).length;
  return bytes > limit ? bytes : null;
}

// Twice the limit is still put into the box, to be shortened there; more would make it slow.
const BOX_TIMES = 2;

/** Whether a text may be put into the box at all. */
export function fitsTheBox(chars: number, limit: number): boolean {
  return chars <= limit * BOX_TIMES;
}
