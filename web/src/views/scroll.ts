/**
 * How the thread scrolls: along with an answer while the reader is at the end. Else what is read stays where it
 * is on the screen, whatever comes in above it or turns out to be taller than was thought.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const NEAR_END_PX = 80;

interface Place {
  current: HTMLElement | null;
}

/** `away`: the end is out of sight. */
export function useScroll(scroller: Place, inner: Place): { away: boolean; toEnd: () => void; onScroll: () => void } {
  const following = useRef(true);
  const lastTop = useRef(0);
  const held = useRef<{ element: Element; at: number } | null>(null); // what is kept in its place, by where it is in the thread
  const [away, setAway] = useState(false);

  const keep = () => {
    const thread = scroller.current;
    if (thread === null) return;
    if (following.current) {
      if (inner.current?.querySelector(".message")) thread.scrollTop = thread.scrollHeight;
    } else if (held.current?.element.isConnected) {
      const at = placeOf(held.current.element, thread);
      if (Math.abs(at - held.current.at) >= 0.5) thread.scrollTop += at - held.current.at;
      held.current.at = at;
    }
    lastTop.current = thread.scrollTop;
  };
  const toEnd = () => {
    following.current = true;
    setAway(false);
    if (scroller.current !== null && !inner.current?.querySelector(".message")) scroller.current.scrollTop = 0;
    keep();
  };
  // Before anything is painted: what this component has drawn, and what has grown by itself.
  useLayoutEffect(keep);
  useEffect(() => {
    if (inner.current === null || scroller.current === null) return;
    const watch = new ResizeObserver(keep);
    watch.observe(inner.current);
    watch.observe(scroller.current); // the keyboard of a phone, or a longer draft
    return () => watch.disconnect();
  }, []);

  const onScroll = () => {
    const thread = scroller.current;
    if (thread === null) return;
    const top = thread.scrollTop;
    const isAtEnd = thread.scrollHeight - top - thread.clientHeight < NEAR_END_PX;
    // Words that came since the last frame are no reader's doing: only a way up is.
    if (isAtEnd) following.current = true;
    else if (top < lastTop.current) following.current = false;
    // What came into sight may have turned out to be of another height after the last look.
    if (!following.current) keep();
    lastTop.current = thread.scrollTop;
    held.current = following.current ? null : topmost(inner.current, thread);
    setAway(!following.current);
  };
  return { away, toEnd, onScroll };
}

// How far from the top of the thread, wherever it is scrolled to.
function placeOf(element: Element, thread: Element): number {
  return element.getBoundingClientRect().top - thread.getBoundingClientRect().top + thread.scrollTop;
}

// The first message that begins in sight: one that is cut off above may turn out to be less tall than was thought,
// and what is below it must not move. Where a message of a stretch out of sight would be nobody asks: that would
// have the browser lay it out.
function topmost(inner: Element | null, thread: Element): { element: Element; at: number } | null {
  const { top, bottom } = thread.getBoundingClientRect();
  const stretches = inner?.getElementsByClassName("stretch") ?? [];
  const at = firstFrom(stretches, (box) => box.bottom > top);
  const messages = stretches[at]?.children ?? [];
  const from = firstFrom(messages, (box) => box.top >= top);
  const [here, next] = [messages[from], stretches[at + 1]];
  const isInSight = (element: Element | undefined) => element !== undefined && element.getBoundingClientRect().top < bottom;
  const element = isInSight(here) ? here : isInSight(next) ? next?.firstElementChild : messages[Math.max(0, from - 1)];
  return element == null ? null : { element, at: placeOf(element, thread) };
}

// They lie one below the other, so half of them at a time is ruled out.
function firstFrom(all: ArrayLike<Element>, holds: (box: DOMRect) => boolean): number {
  let [from, to] = [0, all.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (holds(all[middle]!.getBoundingClientRect())) to = middle;
    else from = middle + 1;
  }
  return from;
}
