/** Which box is open over the page. */
import { signal } from "@preact/signals";

export type Section = "usage" | "instructions" | "keys" | "data" | "sessions" | "look";

export const accountOpen = signal<Section | null>(null);
export const helpOpen = signal(false);

export function openAccount(section: Section = "usage"): void {
  accountOpen.value = section;
}
