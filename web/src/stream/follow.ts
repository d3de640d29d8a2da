/**
 * Follows one reply to its end over any number of connections. The turn is posted until the first
 * event arrives (the same key is the same turn), then only resumed. Never two connections at once.
 */
import { problemOf } from "../api";
import type { Problem } from "../wire";
import { EMPTY, isEnded, take, type Assembly } from "./assembly";
import { waitMs } from "./backoff";
import { eventReader } from "./sse";

const SILENCE_MS = 40_000; // the server sends a ping every 15 s; two lost pings are a dead line

export interface Turn {
  post: { path: string; body: unknown; key: string } | null; // null: the reply is already running
  messageId: string | null;
}

export type Link = "connecting" | "live" | "broken";

export interface Sink {
  assembly(state: Assembly): void;
  link(link: Link): void;
  named(messageId: string): void; // the reply's id, known before its first event
}

export interface World {
  fetch(path: string, init: RequestInit): Promise<Response>;
  sleep(ms: number, signal: AbortSignal): Promise<void>; // may return early when the network is back
  dice(): number;
}

export type Outcome =
  | { kind: "ended" }
  | { kind: "refused"; problem: Problem }
  | { kind: "gone" } // over, or deleted: what is left of it is in the store
  | { kind: "signed_out" }
  | { kind: "left" };

type Step = Outcome | { kind: "broken"; serverMs: number } | { kind: "restart" };

export async function follow(turn: Turn, sink: Sink, world: World, signal: AbortSignal): Promise<Outcome> {
  let state = EMPTY;
  let failures = 0;
  let messageId = turn.messageId;
  const named = (id: string) => {
    messageId = id;
    sink.named(id);
  };
  const keep = (next: Assembly) => {
    state = next;
    sink.assembly(next);
  };
  while (!signal.aborted) {
    const before = state.lastId;
    const step = await connect(turn.post, messageId, named, state, keep, sink, world, signal);
    if (signal.aborted) break;
    if (step.kind === "restart") keep({ ...EMPTY, meta: state.meta });
    else if (step.kind !== "broken") return step;
    failures = state.lastId > before ? 1 : failures + 1; // words that came start the count again
    sink.link("broken");
    await world.sleep(waitMs(failures, world.dice(), step.kind === "broken" ? step.serverMs : 0), signal);
  }
  return { kind: "left" };
}

async function connect(
  post: Turn["post"],
  knownId: string | null,
  named: (messageId: string) => void,
  state: Assembly,
  keep: (next: Assembly) => void,
  sink: Sink,
  world: World,
  outer: AbortSignal,
): Promise<Step> {
  const line = new AbortController();
  const hangUp = () => line.abort();
  outer.addEventListener("abort", hangUp);
  try {
    const messageId = knownId ?? state.meta?.messageId ?? null;
    const posting = messageId === null && post !== null;
    const response = posting
      ? await world.fetch(post.path, postInit(post, line.signal))
      : await world.fetch(resumePath(messageId ?? "", state), resumeInit(state, line.signal));
    const place = /\/messages\/([\w-]{1,100})\/stream/.exec(response.headers.get("Location") ?? "")?.[1];
    if (posting && response.ok && place !== undefined) named(place);
    if (response.status === 200 && response.body !== null) {
      sink.link("live");
      return await pump(response.body, state, keep, line);
    }
    return await refusal(response, posting);
  } catch {
    return { kind: "broken", serverMs: 0 };
  } finally {
    outer.removeEventListener("abort", hangUp);
    line.abort();
  }
}

async function refusal(response: Response, posting: boolean): Promise<Step> {
  const { status } = response;
  if (status === 204) return { kind: "gone" };
  if (status === 401) return { kind: "signed_out" };
  const problem = await problemOf(response);
  const serverMs = (problem.retryAfterSeconds ?? 0) * 1_000;
  if (posting) {
    const passing = status >= 500 && problem.code !== "busy"; // `busy` is the door: it was not taken in
    return passing ? { kind: "broken", serverMs } : { kind: "refused", problem };
  }
  if (status === 404 || status === 403 || status === 410) return { kind: "gone" };
  if (status === 409 || status === 400) return { kind: "restart" };
  return { kind: "broken", serverMs };
}

async function pump(
  body: ReadableStream<Uint8Array>, from: Assembly, keep: (next: Assembly) => void, line: AbortController,
): Promise<Step> {
  let state = from;
  let retry = 0;
  let broken = false;
  const feed = eventReader({
    event: (event) => {
      if (broken || isEnded(state)) return;
      const step = take(state, event);
      if (step.verdict === "gap") broken = true;
      else if (step.verdict !== "dropped") keep((state = step.state));
    },
    retry: (ms) => (retry = ms),
    broken: () => (broken = true),
  });
  const reader = body.getReader();
  try {
    while (!broken && !isEnded(state)) {
      const { value, done } = await orSilence(reader.read(), line);
      if (done) break;
      feed(value);
    }
  } catch {
    broken = true;
  } finally {
    reader.cancel().catch(() => {});
  }
  return isEnded(state) ? { kind: "ended" } : { kind: "broken", serverMs: broken ? 0 : retry };
}

async function orSilence<T>(reading: Promise<T>, line: AbortController): Promise<T> {
  const watch = setTimeout(() => line.abort(), SILENCE_MS);
  try {
    return await reading;
  } finally {
    clearTimeout(watch);
  }
}

function postInit(post: { body: unknown; key: string }, signal: AbortSignal): RequestInit {
  return {
    method: "POST",
    headers: {
      Accept: "text/event-stream",
      "Content-Type": "application/json",
      "Idempotency-Key": post.key,
    },
    body: JSON.stringify(post.body),
    credentials: "same-origin",
    cache: "no-store",
    signal,
  };
}

function resumePath(messageId: string, state: Assembly): string {
  const attempt = state.lastId > 0 ? state.meta?.attempt : undefined;
  const query = attempt === undefined ? "" : `?attempt=${attempt}`;
  return `/v1/messages/${encodeURIComponent(messageId)}/stream${query}`;
}

function resumeInit(state: Assembly, signal: AbortSignal): RequestInit {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (state.lastId > 0) headers["Last-Event-ID"] = String(state.lastId);
  return { headers, credentials: "same-origin", cache: "no-store", signal };
}
