/**
 * Follows one reply to its end over any number of connections. The turn is posted until the first
 * event arrives (the same key is the same turn), then only resumed. Never two connections at once, and
 * none while another tab reads the reply and tells this one.
 */
import { problemOf } from "../api";
import type { Problem } from "../wire";
import { EMPTY, isEnded, take, type Assembly, type StreamEvent } from "./assembly";
import { waitMs } from "./backoff";
import { eventReader } from "./sse";
import type { Reading, Tabs } from "./tabs";

const SILENCE_MS = 40_000; // the server sends a ping every 15 s; two lost pings are a dead line
// After a change of network a line that is alive says something soon, and after a sleep within a ping.
const SILENT_MS: Record<Wake, number> = { online: 1_000, seen: 16_000 };

export interface Turn {
  post: { path: string; body: unknown; key: string } | null; // null: the reply is already running
  messageId: string | null;
}

export type Link = "connecting" | "live" | "broken";
/** The network is back; the page is looked at again. */
export type Wake = "online" | "seen";

export interface Sink {
  assembly(state: Assembly): void;
  link(link: Link): void;
  named(messageId: string): void; // the reply's id, known before its first event
}

export interface World {
  fetch(path: string, init: RequestInit): Promise<Response>;
  sleep(ms: number, signal: AbortSignal): Promise<void>; // may return early when the network is back
  dice(): number;
  now(): number; // milliseconds since some moment
  wakes(tell: (why: Wake) => void): () => void; // returns how to stop it
  tabs: Tabs | null;
}

export type Outcome =
  | { kind: "ended" }
  | { kind: "refused"; problem: Problem }
  | { kind: "gone" } // over, or deleted: what is left of it is in the store
  | { kind: "signed_out" }
  | { kind: "left" };

type Step = Outcome | { kind: "broken"; serverMs: number } | { kind: "restart" };

export function follow(turn: Turn, sink: Sink, world: World, signal: AbortSignal): Promise<Outcome> {
  return new Follower(turn, sink, world, signal).run();
}

class Follower {
  private state = EMPTY;
  private messageId: string | null;
  private isGiven = false; // another tab reads it as well: this one listens

  constructor(
    private readonly turn: Turn, private readonly sink: Sink, private readonly world: World, private readonly signal: AbortSignal,
  ) {
    this.messageId = turn.messageId;
  }

  async run(): Promise<Outcome> {
    let failures = 0;
    while (!this.signal.aborted) {
      const before = this.state.lastId;
      const told = await this.throughAnotherTab();
      if (this.signal.aborted) break; // or the line that is opened now would never be hung up
      const step = told ?? (await this.connect());
      if (this.signal.aborted) break;
      if (this.isGiven && step.kind === "broken") {
        this.isGiven = false;
        continue;
      }
      if (step.kind === "restart") this.keep({ ...EMPTY, meta: this.state.meta });
      else if (step.kind !== "broken") return step;
      failures = this.state.lastId > before ? 1 : failures + 1; // words that came start the count again
      this.sink.link("broken");
      await this.world.sleep(waitMs(failures, this.world.dice(), step.kind === "broken" ? step.serverMs : 0), this.signal);
    }
    return { kind: "left" };
  }

  private keep(next: Assembly): void {
    this.state = next;
    this.sink.assembly(next);
  }

  private named(id: string): void {
    this.messageId = id;
    this.sink.named(id);
  }

  private get knownId(): string | null {
    return this.messageId ?? this.state.meta?.messageId ?? null;
  }

  private async throughAnotherTab(): Promise<Step | null> {
    const id = this.knownId;
    if (id === null || this.world.tabs === null) return null;
    const keep = (state: Assembly) => {
      this.sink.link("live");
      this.keep(state);
    };
    return (await this.world.tabs.listen(id, this.state, keep, this.signal)) === "ended" ? { kind: "ended" } : null;
  }

  private async connect(): Promise<Step> {
    const line = new AbortController();
    const hangUp = () => line.abort();
    let heardMs = this.world.now();
    const unwake = this.world.wakes((why) => {
      if (this.world.now() - heardMs > SILENT_MS[why]) hangUp();
    });
    this.signal.addEventListener("abort", hangUp);
    let reading: Reading | null = null;
    try {
      const id = this.knownId;
      const posting = id === null && this.turn.post !== null ? this.turn.post : null;
      const response = posting !== null
        ? await this.world.fetch(posting.path, postInit(posting, line.signal))
        : await this.world.fetch(resumePath(id ?? "", this.state), resumeInit(this.state, line.signal));
      const place = /\/messages\/([\w-]{1,100})\/stream/.exec(response.headers.get("Location") ?? "")?.[1];
      if (posting !== null && response.ok && place !== undefined) this.named(place);
      if (response.status !== 200 || response.body === null) return await refusal(response, posting !== null);
      this.sink.link("live");
      const reply = this.knownId;
      const give = () => {
        this.isGiven = true;
        hangUp();
      };
      if (reply !== null) reading = this.world.tabs?.read(reply, () => this.state, give) ?? null;
      return await this.pump(response.body, line, (events) => {
        heardMs = this.world.now();
        reading?.tell(events);
      });
    } catch {
      return { kind: "broken", serverMs: 0 };
    } finally {
      this.signal.removeEventListener("abort", hangUp);
      unwake();
      reading?.leave();
      line.abort();
    }
  }

  private async pump(
    body: ReadableStream<Uint8Array>, line: AbortController, heard: (events: StreamEvent[]) => void,
  ): Promise<Step> {
    let retry = 0;
    let broken = false;
    let took: StreamEvent[] = [];
    const feed = eventReader({
      event: (event) => {
        if (broken || isEnded(this.state)) return;
        const step = take(this.state, event);
        if (step.verdict === "gap") broken = true;
        else if (step.verdict !== "dropped") {
          took.push(event);
          this.state = step.state;
        }
      },
      retry: (ms) => (retry = ms),
      broken: () => (broken = true),
    });
    const reader = body.getReader();
    try {
      while (!broken && !isEnded(this.state)) {
        const { value, done } = await orSilence(reader.read(), line);
        if (done) break;
        feed(value);
        if (took.length > 0) this.keep(this.state); // once for what came at once: a fast answer has many events in it
        heard(took);
        took = [];
      }
    } catch {
      broken = true;
    } finally {
      reader.cancel().catch(() => {});
    }
    return isEnded(this.state) ? { kind: "ended" } : { kind: "broken", serverMs: broken ? 0 : retry };
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
