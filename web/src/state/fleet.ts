/** The fleet as administrators see it, by one stream for as long as somebody looks. */
import { signal } from "@preact/signals";
import { problemOf } from "../api";
import { waitMs } from "../stream/backoff";
import { eventReader } from "../stream/sse";
import type { FleetNow, FleetPast, Point } from "../wire-admin";

const SILENCE_MS = 15_000; // a look comes every two seconds
const MOST_POINTS = 900; // as many as the gateway keeps: half an hour
const MOST_STEPS = 100;

export type Line = "connecting" | "live" | "broken" | "forbidden";

export const fleet = signal<FleetNow | null>(null);
export const points = signal<readonly Point[]>([]);
export const steps = signal<FleetPast["steps"]>([]);
export const line = signal<Line>("connecting");

/** Follows until the signal says to stop. Ends by itself only where the reader is no administrator. */
export async function watchFleet(stop: AbortSignal): Promise<void> {
  line.value = "connecting";
  for (let failures = 0; !stop.aborted; ) {
    const before = fleet.value;
    const isOver = await connect(stop);
    if (stop.aborted) return;
    if (isOver) {
      line.value = "forbidden";
      return;
    }
    line.value = "broken";
    failures = fleet.value === before ? failures + 1 : 1;
    await pause(waitMs(failures, Math.random()), stop);
  }
}

/** One more look: the points and steps that are known grow by it, up to their bound. */
export function take(kind: string, data: unknown): void {
  if (kind === "past") {
    const past = data as FleetPast;
    points.value = past.points.slice(-MOST_POINTS);
    steps.value = past.steps.slice(-MOST_STEPS);
    return;
  }
  if (kind !== "now") return;
  const now = data as FleetNow;
  const last = points.value[points.value.length - 1];
  if (now.point !== null && (last === undefined || now.point[0] > last[0])) {
    points.value = [...points.value, now.point].slice(-MOST_POINTS);
  }
  if (steps.value[steps.value.length - 1]?.rung !== now.ladder.rung) {
    steps.value = [...steps.value, { at: now.at, rung: now.ladder.rung, name: now.ladder.name }].slice(-MOST_STEPS);
  }
  fleet.value = now;
}

/** Whether trying again is no use. */
async function connect(stop: AbortSignal): Promise<boolean> {
  const call = new AbortController();
  const hangUp = () => call.abort();
  let silence: ReturnType<typeof setTimeout> | undefined;
  stop.addEventListener("abort", hangUp);
  try {
    const response = await fetch("/v1/admin/live", { signal: call.signal, headers: { Accept: "text/event-stream" } });
    if (!response.ok || response.body === null) {
      const { status } = await problemOf(response);
      return status === 401 || status === 403;
    }
    line.value = "live";
    const feed = eventReader({ event: ({ name, data }) => take(name, data), retry: () => {}, broken: hangUp });
    const reader = response.body.getReader();
    for (;;) {
      clearTimeout(silence);
      silence = setTimeout(hangUp, SILENCE_MS);
      const { done, value } = await reader.read();
      if (done) return false;
      feed(value);
    }
  } catch {
    return false;
  } finally {
    clearTimeout(silence);
    stop.removeEventListener("abort", hangUp);
    call.abort();
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
