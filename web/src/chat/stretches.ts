/**
 * A long conversation in stretches: what the browser has to look at for each frame is then a few of them, and
 * not every message. Pure.
 */

const LENGTH = 32; // messages; some four screens, so that one or two are near at a time

export interface Stretch<M> {
  key: number;
  messages: M[];
}

/**
 * Cuts a branch by the places of its messages in the conversation, so that older ones that come in above move
 * nothing from one stretch to another; an answer stays with its question. What is as it was `before` is the same
 * stretch, so that nobody looks at its messages.
 */
export function stretchesOf<M extends { seq: number; role: string }>(path: readonly M[], before: readonly Stretch<M>[] = []): Stretch<M>[] {
  const stretches: Stretch<M>[] = [];
  for (const message of path) {
    const last = stretches.at(-1);
    const key = Math.floor((message.seq - 1) / LENGTH);
    if (last !== undefined && (key <= last.key || message.role !== "user")) last.messages.push(message);
    else stretches.push({ key, messages: [message] });
  }
  const known = new Map(before.map((one) => [one.key, one]));
  return stretches.map((one) => {
    const same = known.get(one.key);
    return same !== undefined && isSame(same.messages, one.messages) ? same : one;
  });
}

function isSame<M>(a: readonly M[], b: readonly M[]): boolean {
  return a.length === b.length && a.every((message, at) => message === b[at]);
}
