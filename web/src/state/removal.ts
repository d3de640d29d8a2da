/**
 * Deleting a conversation can be undone for a while: it is gone from the screen at once and from the store when the
 * time is over, or when the page is left. Until then nothing was deleted.
 */
import { signal } from "@preact/signals";

export const UNDO_MS = 8_000; // as long as its note is shown

/** The ids of those that are about to be deleted. */
export const leaving = signal<ReadonlySet<string>>(new Set());

export interface Removal {
  id: string;
  /** Deletes it in the store; `isLast`: the page is being left, and nobody waits for the answer. */
  remove: (isLast: boolean) => Promise<void>;
  /** It is shown again: it was taken back, or could not be deleted. */
  restore: () => void;
}

const pending = new Map<string, { removal: Removal; timer: ReturnType<typeof setTimeout> }>();

export function removeSoon(removal: Removal, waitMs = UNDO_MS): void {
  if (pending.has(removal.id)) return;
  const timer = setTimeout(() => void finish(removal.id, false), waitMs);
  pending.set(removal.id, { removal, timer });
  leaving.value = new Set([...leaving.value, removal.id]);
}

/** Whether there was something to undo. Without an id: the last one. */
export function undo(id: string | undefined = [...pending.keys()].at(-1)): boolean {
  const found = id === undefined ? undefined : pending.get(id);
  if (found === undefined) return false;
  clearTimeout(found.timer);
  pending.delete(found.removal.id);
  show(found.removal.id);
  found.removal.restore();
  return true;
}

/** The page is left, or the person: what was to be deleted is deleted now. */
export async function removeNow(isLast: boolean): Promise<void> {
  await Promise.all([...pending.keys()].map((id) => finish(id, isLast)));
}

async function finish(id: string, isLast: boolean): Promise<void> {
  const found = pending.get(id);
  if (found === undefined) return;
  clearTimeout(found.timer);
  pending.delete(id);
  try {
    await found.removal.remove(isLast);
  } catch {
    show(id);
    found.removal.restore();
    return;
  }
  show(id); // the list has forgotten it
}

function show(id: string): void {
  leaving.value = new Set([...leaving.value].filter((one) => one !== id));
}
