/**
 * What is in sight, or nearly. The browser skips the rest (`content-visibility`) and says so. Of messages that are
 * far only the words are kept in the document, for searching and reading, and not their buttons.
 */
import { useEffect, useState } from "preact/hooks";

const CHANGED = "contentvisibilityautostatechange";
export const isTold = typeof document !== "undefined" && `on${CHANGED}` in document.documentElement;

const setters = new WeakMap<Element, (isNear: boolean) => void>();

/** Listens for everything within. */
export function useNearness(inner: { current: HTMLElement | null }): void {
  useEffect(() => {
    const element = inner.current;
    if (element === null || !isTold) return;
    const changed = (event: Event) => {
      if (event.target instanceof Element) setters.get(event.target)?.(!(event as Event & { skipped?: boolean }).skipped);
    };
    element.addEventListener(CHANGED, changed);
    return () => element.removeEventListener(CHANGED, changed);
  }, []);
}

/** Tells whether this element is near, whenever that changes. Where no browser says so nothing is told: all is near. */
export function tellOf(element: Element, tell: (isNear: boolean) => void): void {
  setters.set(element, tell);
}

/** Whether something is near, and the `ref` for its element. Where no browser says so all is. */
export function useNear(atFirst: boolean): [boolean, (element: Element | null) => void] {
  const [[isNear, place], set] = useState<[boolean, (element: Element | null) => void]>(() => [
    atFirst || !isTold,
    (element) => {
      if (element !== null) tellOf(element, (near) => set(([, place]) => [near, place]));
    },
  ]);
  return [isNear, place];
}
