/** The part of a growing text to show now: words at a steady rate, all of it when it does not matter. */
import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { LiveReply } from "../state/live";
import { arrive, cutAt, restMs, START, type Pace } from "../text/pace";

const HIDDEN_MS = 500; // no frames are drawn for a page that nobody sees
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** What is shown of a reply; with none under way that is all of `content`. */
export function usePaced(live: LiveReply | null, content: string): string {
  const pace = useRef<Pace>({ ...START });
  const shown = useRef("");
  const drawnAt = useRef(0); // the last change, until the next frame shows how long it took
  const restUntil = useRef(0);
  const [, redraw] = useState(0);
  const first = useRef<LiveReply | null>(null);
  if (live !== null && first.current !== live) {
    // What was there before the page looked is not written anew.
    const text = live.assembly.peek().text.length < live.stored.length ? live.stored : live.assembly.peek().text;
    pace.current = { ...START, shown: text.length, total: text.length, atMs: performance.now() };
    shown.current = text;
    drawnAt.current = 0;
  }
  first.current = live;

  useEffect(() => {
    if (live === null) return;
    let frame = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const schedule = () => {
      if (frame !== 0 || timer !== undefined) return;
      if (document.hidden) timer = setTimeout(step, HIDDEN_MS);
      else frame = requestAnimationFrame(step);
    };
    const step = () => {
      frame = 0;
      timer = undefined;
      const now = performance.now();
      // What took long is done less often, so that scrolling and typing stay smooth on a slow machine.
      if (drawnAt.current !== 0) restUntil.current = now + restMs(now - drawnAt.current);
      drawnAt.current = 0;
      if (now < restUntil.current && !document.hidden) return schedule();
      const text = live.text;
      const atOnce = document.hidden || still.matches;
      pace.current = arrive(pace.current, text.length, now);
      if (atOnce) pace.current = { ...START, shown: text.length, total: text.length, atMs: now };
      const next = text.slice(0, cutAt(text, pace.current.shown));
      if (next !== shown.current) {
        shown.current = next;
        if (!document.hidden) drawnAt.current = now;
        redraw((count) => count + 1);
      }
      if (drawnAt.current !== 0 || pace.current.shown < pace.current.total) schedule();
    };
    const stop = effect(() => {
      void live.assembly.value;
      schedule();
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [live]);

  return live === null ? content : shown.current;
}
