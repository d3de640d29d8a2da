/**
 * Which conversations were answered while nobody looked. A mark comes from an answer that this browser saw running
 * and that then ended elsewhere: a title that is made later, or a pin, marks nothing.
 */
import { effect, signal } from "@preact/signals";
import type { Conversation } from "../wire";
import { conversations } from "./conversations";
import { recall, remember } from "./memory";
import { route } from "./route";
import { account } from "./session";

const MOST = 200;

export interface Marks {
  running: readonly string[];
  unread: readonly string[];
}

const NONE: Marks = { running: [], unread: [] };
export const marks = signal<Marks>(NONE);

/** What is marked after the list was seen once more. `open` is what the person is reading, if anything. */
export function seen(known: Marks, items: readonly Conversation[], open: string | null): Marks {
  const running = new Set(known.running);
  const unread = new Set(known.unread);
  for (const one of items) {
    if (one.activeMessageId !== null) {
      running.add(one.id);
    } else if (running.delete(one.id)) {
      unread.add(one.id);
    }
  }
  if (open !== null) unread.delete(open);
  const next = { running: [...running].slice(-MOST), unread: [...unread].slice(-MOST) };
  const isSame = same(next.running, known.running) && same(next.unread, known.unread);
  return isSame ? known : next;
}

/** Keeps the marks of the person who is signed in, in this browser. */
export function keepMarks(id: string): () => void {
  const name = `marks.${id}`;
  marks.value = recall<Marks>(name, NONE);
  const visible = signal(!document.hidden);
  const look = () => (visible.value = !document.hidden);
  document.addEventListener("visibilitychange", look);
  const stop = effect(() => {
    if (account.value?.id !== id) return;
    const next = seen(marks.peek(), conversations.value, visible.value ? route.value : null);
    if (next === marks.peek()) return;
    marks.value = next;
    remember(name, next);
  });
  return () => {
    document.removeEventListener("visibilitychange", look);
    stop();
  };
}

function same(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((id, at) => id === other[at]);
}
