/** Short notes at the edge of the page. At most four, each gone by itself. */
import { signal } from "@preact/signals";
import { announce } from "./announce";

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
  action?: Action;
}

/** What can be done about it, for as long as the note is shown. */
export interface Action {
  label: string;
  run: () => void;
}

const MOST = 4;
const SHOWN_MS = 7_000; // two lines can be read twice

export const toasts = signal<Toast[]>([]);
let count = 0;

export function toast(text: string, kind: "good" | "bad" = "good", action?: Action, shownMs = SHOWN_MS): number {
  const id = ++count;
  const shown: Toast = { id, text, bad: kind === "bad", ...(action === undefined ? {} : { action }) };
  toasts.value = [...toasts.value, shown].slice(-MOST);
  announce(text);
  setTimeout(() => dismiss(id), shownMs);
  return id;
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}
