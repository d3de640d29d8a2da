/** What is asked of the planner and what it answers. Everything is computed by the gateway; here is only when it is asked. */
import { signal } from "@preact/signals";
import { call, Refused, sentenceOf } from "../api";
import type { PlanShown, PlanWish } from "../wire-admin";

const REST_MS = 120; // a slider that is moved asks when it rests
const AGAIN_MS = 1_000; // and again, where others are being answered
const MOST_TRIES = 5;

export const wish = signal<PlanWish>({ values: {}, words: {} });
export const plan = signal<PlanShown | null>(null);
/** Why the last wish makes no plan; the plan is then of the wish before it. */
export const refusal = signal<string | null>(null);
export const isAsking = signal(false);

let asking: AbortController | null = null;

export function give(name: string, value: number): void {
  wish.value = { ...wish.value, values: { ...wish.value.values, [name]: value } };
  void ask(REST_MS);
}

export function say(name: string, word: string): void {
  wish.value = { ...wish.value, words: { ...wish.value.words, [name]: word } };
  void ask(0);
}

/** Begins anew with what the planner assumes. */
export function forget(): void {
  wish.value = { values: {}, words: {} };
  void ask(0);
}

/** Asks for the plan of the wish as it is in a moment; what was asked before is not waited for any more. */
export async function ask(restMs: number): Promise<void> {
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  isAsking.value = true;
  await pause(restMs);
  for (let tries = 1; !mine.signal.aborted; tries++) {
    try {
      const answer = await call<PlanShown>("POST", "/v1/admin/plan", wish.value, { signal: mine.signal });
      if (mine.signal.aborted) return;
      plan.value = answer;
      refusal.value = null;
      break;
    } catch (error) {
      if (mine.signal.aborted) return;
      if (tries < MOST_TRIES && error instanceof Refused && error.problem.status === 429) {
        await pause(AGAIN_MS);
        continue;
      }
      // The planner's sentence says which input makes no sense, and why: there is none as good by its code.
      const own = error instanceof Refused && error.problem.status === 400 ? error.problem.detail : undefined;
      refusal.value = own ?? sentenceOf(error);
      break;
    }
  }
  if (asking === mine) isAsking.value = false;
}

/** Nobody looks any more. */
export function leave(): void {
  asking?.abort();
  asking = null;
  isAsking.value = false;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
