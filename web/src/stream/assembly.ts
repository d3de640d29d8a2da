/**
 * What a reply is after a series of stream events: a pure function, one event at a time.
 * It never reads a clock or a socket, and it never accepts an event twice or over a gap.
 */
import type { Failure, Meta } from "../wire";

export interface StreamEvent {
  name: string;
  id: number | null;
  data: Record<string, unknown>;
}

export interface Refusal {
  stage: string;
  category: string;
  text: string;
}

export interface Assembly {
  text: string;
  lastId: number;
  meta: Meta | null;
  queue: { position: number; waitSeconds: number | null } | null;
  paused: boolean;
  refusal: Refusal | null;
  finish: string | null;
  failure: Failure | null;
}

export const EMPTY: Assembly = {
  text: "",
  lastId: 0,
  meta: null,
  queue: null,
  paused: false,
  refusal: null,
  finish: null,
  failure: null,
};

export type Verdict = "took" | "dropped" | "gap" | "ended";

/** The next state and what the reader of the stream has to do about it. */
export function take(state: Assembly, event: StreamEvent): { state: Assembly; verdict: Verdict } {
  if (event.name === "reset") return { state: afterReset(state, event), verdict: "took" };
  if (event.id !== null) {
    if (event.id <= state.lastId) return { state, verdict: "dropped" };
    if (event.id > state.lastId + 1) return { state, verdict: "gap" };
  }
  const apply = EVENTS[event.name];
  // An event of a later version still counts, or its number would look like a gap.
  const changed = apply === undefined ? {} : apply(state, event.data);
  const next: Assembly = { ...state, ...changed, lastId: event.id ?? state.lastId };
  return { state: next, verdict: isEnded(next) ? "ended" : "took" };
}

export function isEnded(state: Assembly): boolean {
  return state.finish !== null || state.failure !== null;
}

// A reset may itself be number 1 of the new attempt; any other number belongs to the old one.
function afterReset(state: Assembly, event: StreamEvent): Assembly {
  return { ...EMPTY, meta: state.meta, lastId: event.id === 1 ? 1 : 0 };
}

type Apply = (state: Assembly, data: Record<string, unknown>) => Partial<Assembly>;

const EVENTS: Record<string, Apply> = {
  meta: (_, data) => ({ meta: asMeta(data), queue: null, paused: false }),
  queue: (_, data) => ({
    queue: {
      position: asNumber(data["position"]) ?? 0,
      waitSeconds: asNumber(data["estimatedWaitSeconds"]),
    },
  }),
  delta: (state, data) => ({ text: state.text + asText(data["text"]), queue: null, paused: false }),
  pause: () => ({ paused: true }),
  refusal: (_, data) => ({
    refusal: {
      stage: asText(data["stage"]),
      category: asText(data["category"]),
      text: asText(data["text"]),
    },
    queue: null,
    paused: false,
  }),
  done: (_, data) => ({ finish: asText(data["finish"]) || "stop", queue: null, paused: false }),
  fail: (_, data) => {
    const wait = asNumber(data["retryAfterSeconds"]);
    const failure: Failure = {
      code: asText(data["code"]) || "internal",
      message: asText(data["message"]) || "The answer broke off.",
      retryable: data["retryable"] !== false,
      ...(wait === null ? {} : { retryAfterSeconds: wait }),
    };
    return { failure, queue: null, paused: false };
  },
};

function asMeta(data: Record<string, unknown>): Meta {
  const attempt = asNumber(data["attempt"]);
  return {
    messageId: asText(data["messageId"]),
    userMessageId: asText(data["userMessageId"]),
    conversationId: asText(data["conversationId"]),
    model: asText(data["model"]),
    requested: asText(data["requested"]),
    reason: asText(data["reason"]),
    notices: Array.isArray(data["notices"]) ? data["notices"].map(String) : [],
    ...(attempt === null ? {} : { attempt }),
  };
}

function asText(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function asNumber(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
