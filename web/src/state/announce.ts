/** One sentence at a time for screen readers: start, waiting, end and error. Never the words of a reply. */
import { signal } from "@preact/signals";

export const announcement = signal("");

export function announce(sentence: string): void {
  // The same sentence twice must be a change, or it is not read out.
  announcement.value = announcement.value === sentence ? `${sentence}\u00a0` : sentence;
}
