/** The part of a growing text to show now: words at a steady rate, all of it when it does not matter. */
import { useEffect, useRef, useState } from "preact/hooks";
import { advance, arrive, cutAt, START, type Pace } from "../text/pace";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function usePaced(text: string, growing: boolean): string {
  const pace = useRef<Pace>({ ...START, shown: text.length, total: text.length, atMs: performance.now() });
  const [, redraw] = useState(0);
  const atOnce = !growing || document.hidden || still.matches;

  useEffect(() => {
    if (atOnce) {
      pace.current = { ...START, shown: text.length, total: text.length, atMs: performance.now() };
      return;
    }
    pace.current = arrive(pace.current, text.length, performance.now());
    let frame = 0;
    const step = () => {
      pace.current = advance(pace.current, performance.now());
      redraw((count) => count + 1);
      if (pace.current.shown < pace.current.total) frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [text, atOnce]);

  return atOnce ? text : text.slice(0, cutAt(text, pace.current.shown));
}
