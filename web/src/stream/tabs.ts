/**
 * Several tabs of one browser that show one reply share one connection: the tab that reads it tells the
 * others every event, and answers whoever asks with what it has so far. What is told passes the same
 * checks as what comes from the gateway, so a tab that misses something reads for itself.
 */
import { isEnded, take, type Assembly, type StreamEvent } from "./assembly";

const ASK_MS = 120; // another tab answers within a few milliseconds, unless it is busy
const SILENCE_MS = 20_000; // the server sends a ping every 15 s, and the reading tab passes it on
const APART_MS = 300; // tabs that lose their reader together do not all begin to read at once

export interface Channel {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent) => void) | null;
}

export interface TabWorld {
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  dice(): number;
  wakes(tell: () => void): () => void; // looked at again, or the network is back; returns how to stop it
}

type Told =
  | { kind: "ask"; reply: string }
  | { kind: "state"; reply: string; from: string; state: Assembly }
  | { kind: "events"; reply: string; from: string; events: StreamEvent[] } // none: still reading
  | { kind: "left"; reply: string };

/** What the reading tab has in hand while it reads. */
export interface Reading {
  tell(events: StreamEvent[]): void;
  leave(): void;
}

interface Reader {
  heard: boolean; // another tab has asked: before that nobody need be told anything
  state(): Assembly;
  give(): void; // another tab reads it as well: one of the two lets go
}

export class Tabs {
  private readonly readers = new Map<string, Reader>();
  private readonly listeners = new Map<string, Set<(told: Told) => void>>();

  /** `id` differs from tab to tab; of two tabs that read the same reply the one with the lower id goes on. */
  constructor(private readonly channel: Channel, private readonly world: TabWorld, private readonly id: string) {
    channel.onmessage = (event) => this.hear(event.data as Told);
  }

  /**
   * Follows a reply through another tab. Ends with "ended", or with "alone" when nobody reads it any more or
   * something was missed: then this tab reads it from what `keep` got last.
   */
  async listen(reply: string, begin: Assembly, keep: (state: Assembly) => void, signal: AbortSignal): Promise<"ended" | "alone"> {
    let state = begin;
    for (let round = 0; !signal.aborted; round++) {
      if (round > 0) await this.world.sleep(this.world.dice() * APART_MS, signal);
      const turn = await this.listenOnce(reply, state, (next) => keep((state = next)), signal);
      if (turn !== "left") return turn;
    }
    return "alone";
  }

  /** Says that this tab reads the reply. `give` is called when it should stop, as another tab does. */
  read(reply: string, state: () => Assembly, give: () => void): Reading {
    const reader: Reader = { heard: false, state, give };
    this.readers.set(reply, reader);
    this.post({ kind: "events", reply, from: this.id, events: [] }); // a tab that reads it too is found out
    return {
      tell: (events) => {
        if (reader.heard) this.post({ kind: "events", reply, from: this.id, events });
      },
      leave: () => {
        if (this.readers.get(reply) !== reader) return;
        this.readers.delete(reply);
        this.post({ kind: "left", reply });
      },
    };
  }

  /** The tab is about to go, or to be frozen: others begin to read at once. */
  leaveAll(): void {
    for (const reply of this.readers.keys()) this.post({ kind: "left", reply });
  }

  private async listenOnce(
    reply: string, begin: Assembly, keep: (state: Assembly) => void, outer: AbortSignal,
  ): Promise<"ended" | "alone" | "left"> {
    let state = begin;
    let end: "ended" | "alone" | "left" | null = null;
    let heard = 0;
    let again = false;
    let nap = new AbortController();
    const finish = (how: NonNullable<typeof end>) => {
      end = how;
      nap.abort();
    };
    const hear = (told: Told) => {
      if (told.kind === "ask" || end !== null) return;
      if (told.kind === "left") return finish("left");
      heard++;
      const next = told.kind === "state" ? newer(state, told.state) : taken(state, told.events);
      if (next === null) return finish("alone");
      if (next !== state) keep((state = next));
      if (isEnded(state)) finish("ended");
    };
    const leave = () => finish("alone");
    const wake = () => {
      again = true;
      nap.abort();
    };
    const cleanUp = [this.hearOf(reply, hear), this.world.wakes(wake), () => outer.removeEventListener("abort", leave)];
    outer.addEventListener("abort", leave);
    let patience = ASK_MS;
    this.post({ kind: "ask", reply });
    while (end === null) {
      nap = new AbortController();
      await this.world.sleep(patience, nap.signal);
      if (end !== null) break;
      if (again) this.post({ kind: "ask", reply });
      else if (heard === 0) end = "alone"; // nobody reads it
      patience = again ? ASK_MS : SILENCE_MS;
      heard = 0;
      again = false;
    }
    cleanUp.forEach((undo) => undo());
    return end;
  }

  private hearOf(reply: string, hear: (told: Told) => void): () => void {
    const all = this.listeners.get(reply) ?? new Set();
    this.listeners.set(reply, all.add(hear));
    return () => {
      all.delete(hear);
      if (all.size === 0) this.listeners.delete(reply);
    };
  }

  private hear(told: Told): void {
    if (typeof told?.reply !== "string") return;
    const reader = this.readers.get(told.reply);
    if (reader !== undefined) {
      reader.heard = true;
      if (told.kind === "ask") this.post({ kind: "state", reply: told.reply, from: this.id, state: reader.state() });
      else if (told.kind !== "left" && told.from < this.id) reader.give();
      else if (told.kind !== "left") this.post({ kind: "events", reply: told.reply, from: this.id, events: [] });
    }
    for (const hear of [...(this.listeners.get(told.reply) ?? [])]) hear(told);
  }

  private post(told: Told): void {
    this.channel.postMessage(told);
  }
}

// Of two states of one attempt the longer; of two attempts the later.
function newer(mine: Assembly, theirs: Assembly): Assembly {
  const attempts = [mine.meta?.attempt ?? 0, theirs.meta?.attempt ?? 0] as const;
  if (attempts[0] !== attempts[1]) return attempts[1] > attempts[0] ? theirs : mine;
  return theirs.lastId > mine.lastId || (mine.lastId === 0 && theirs.queue !== mine.queue) ? theirs : mine;
}

// `null`: something before these events was missed.
function taken(state: Assembly, events: StreamEvent[]): Assembly | null {
  for (const event of events) {
    const step = take(state, event);
    if (step.verdict === "gap") return null;
    if (step.verdict !== "dropped") state = step.state;
  }
  return state;
}
