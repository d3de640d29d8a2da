/** Short notes at the edge of the page. At most four, each gone by itself. */
import { signal } from "@preact/signals";
import { announce } from "./announce";

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

const MOST = 4;
const SHOWN_MS = 7_000; // two lines can be read twice

export const toasts = signal<Toast[]>([]);
let count = 0;

export function toast(text: string, kind: "good" | "bad" = "good"): void {
  const id = ++count;
  toasts.value = [...toasts.value, { id, text, bad: kind === "bad" }].slice(-MOST);
  announce(text);
  setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}
