/** Trials of a plan: one is played at a time, and the newest that ended are kept to be compared. */
import { signal } from "@preact/signals";
import { problemOf, sentence, sentenceOf, Unreachable } from "../api";
import { t } from "../i18n";
import { eventReader } from "../stream/sse";
import type { PlanWish, TrialTold } from "../wire-admin";

const MOST_KEPT = 4;

export interface Conditions {
  load: number;
  ladder: boolean;
  paidFirst: boolean;
  door: boolean;
}

export interface Trial {
  number: number;
  conditions: Conditions;
  told: TrialTold;
}

/** The newest first. */
export const trials = signal<readonly Trial[]>([]);
/** How far the one is that is played, from 0 to 1; null while none is. */
export const progress = signal<number | null>(null);
export const fault = signal<string | null>(null);

let playing: AbortController | null = null;
let played = 0;

/** Plays the wish under these conditions, unless one is played already. Ends when it has, or was cancelled. */
export async function play(wish: PlanWish, conditions: Conditions): Promise<void> {
  if (playing !== null) return;
  const stop = (playing = new AbortController());
  progress.value = 0;
  fault.value = null;
  try {
    const told = await follow({ ...wish, ...conditions }, stop.signal);
    trials.value = [{ number: ++played, conditions, told }, ...trials.value].slice(0, MOST_KEPT);
  } catch (error) {
    if (!stop.signal.aborted) fault.value = error instanceof Failed ? error.message : sentenceOf(error);
  } finally {
    playing = null;
    progress.value = null;
  }
}

/** Cancels what is played; the gateway ends it as soon as nobody reads it. */
export function cancel(): void {
  playing?.abort();
}

/** Why nothing came of it, in a sentence for people. */
class Failed extends Error {}

async function follow(body: unknown, signal: AbortSignal): Promise<TrialTold> {
  const response = await fetch("/v1/admin/simulation", {
    method: "POST", signal, body: JSON.stringify(body),
    headers: { Accept: "text/event-stream", "Content-Type": "application/json" },
  }).catch(() => {
    throw new Unreachable("The server cannot be reached.");
  });
  if (!response.ok || response.body === null) {
    const problem = await problemOf(response);
    throw new Failed(problem.status === 400 ? problem.detail ?? sentence(problem) : sentence(problem));
  }
  const end: { told: TrialTold | null; why: string | null } = { told: null, why: null };
  const feed = eventReader({
    event: ({ name, data }) => {
      if (name === "progress") progress.value = Number(data["share"]);
      else if (name === "told") end.told = data as unknown as TrialTold;
      else if (name === "fail") end.why = String(data["message"]);
    },
    retry: () => {},
    broken: () => {},
  });
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    feed(value);
  }
  if (end.why !== null) throw new Failed(end.why);
  if (end.told === null) throw new Failed(t("The connection was lost before the end. Play it again."));
  return end.told;
}
