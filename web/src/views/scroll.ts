/** How the thread scrolls: along with an answer while the reader is at the end, and not at all when older messages come in above. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const NEAR_END_PX = 80;

interface Place {
  current: HTMLElement | null;
}

/** Follows the end until the reader scrolls up. `away`: the end is out of sight. */
export function useFollowing(scroller: Place, inner: Place): { away: boolean; toEnd: () => void; onScroll: () => void } {
  const following = useRef(true);
  const lastTop = useRef(0);
  const [away, setAway] = useState(false);

  const toEnd = () => {
    following.current = true;
    setAway(false);
    const element = scroller.current;
    if (element !== null) element.scrollTop = inner.current?.querySelector(".message") ? element.scrollHeight : 0;
  };
  useEffect(() => {
    if (inner.current === null || scroller.current === null) return;
    const follow = () => {
      const element = scroller.current;
      if (following.current && element?.querySelector(".message")) element.scrollTop = element.scrollHeight;
    };
    const watch = new ResizeObserver(follow);
    watch.observe(inner.current);
    watch.observe(scroller.current); // the keyboard of a phone, or a longer draft
    return () => watch.disconnect();
  }, []);

  const onScroll = () => {
    const element = scroller.current;
    if (element === null) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    // Words that came since the last frame are no reader's doing: only a way up is.
    if (atEnd) following.current = true;
    else if (element.scrollTop < lastTop.current) following.current = false;
    lastTop.current = element.scrollTop;
    setAway(!atEnd && !following.current);
  };
  return { away, toEnd, onScroll };
}

/** Keeps what is read where it is on the screen when messages come in above `first`, the topmost one. */
export function useSteady(scroller: Place, inner: Place, keys: readonly string[]): void {
  const known = useRef<string | undefined>(undefined);
  const mark = useRef<{ element: Element; top: number } | null>(null);
  const before = known.current;
  known.current = keys[0];
  if (before !== undefined && before !== keys[0] && keys.includes(before)) {
    // Still the document as it is on the screen: what comes is not in it yet.
    const element = inner.current?.querySelector(".message") ?? null;
    mark.current = element === null ? null : { element, top: element.getBoundingClientRect().top };
  }
  useLayoutEffect(() => {
    const { current } = mark;
    mark.current = null;
    if (current === null || scroller.current === null || !current.element.isConnected) return;
    const moved = current.element.getBoundingClientRect().top - current.top;
    if (moved !== 0) scroller.current.scrollTop += moved;
  });
}
