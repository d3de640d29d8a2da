/** A value made of signals: what shows it is drawn again only when it is another one. */
import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";

/** `on` names what is no signal among the things that it is made of. */
export function useDerived<T extends string | number | boolean | null>(make: () => T, on: readonly unknown[]): T {
  return useMemo(() => computed(make), on).value;
}
