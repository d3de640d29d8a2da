/** A reply under way: its stream, followed in the background until it ends or is let go. */
import { signal } from "@preact/signals";
import { EMPTY, type Assembly } from "../stream/assembly";
import { follow, type Link, type Outcome, type Turn, type World } from "../stream/follow";
import type { Meta } from "../wire";
import { announce } from "./announce";

export class LiveReply {
  readonly assembly = signal<Assembly>(EMPTY);
  readonly link = signal<Link>("connecting");
  readonly stopping = signal(false);
  readonly viewKey: string;
  named: Meta | null = null;
  messageId: string | null = null;
  private readonly control = new AbortController();

  /**
   * `stored` is shown until the stream has caught up with it, so that the answer never shrinks.
   * `quiet`: it is over already, and only read again for what the store does not tell.
   */
  constructor(readonly key: string, readonly stored = "", readonly quiet = false) {
    this.viewKey = key;
  }

  /** Sent, and the server's id of it not known: the same reply may already be in the store under another. */
  get nameless(): boolean {
    return this.messageId === null && this.named === null;
  }

  get signal(): AbortSignal {
    return this.control.signal;
  }

  get text(): string {
    const { text } = this.assembly.value;
    return text.length < this.stored.length ? this.stored : text;
  }

  leave(): void {
    this.control.abort();
  }

  async follow(turn: Turn, tell: (state: Assembly) => void, named: (messageId: string) => void): Promise<Outcome> {
    const sink = {
      assembly: (state: Assembly) => this.took(state, tell),
      link: (link: Link) => (this.link.value = link),
      named: (id: string) => {
        this.messageId = id;
        named(id);
      },
    };
    return await follow(turn, sink, world, this.signal);
  }

  private took(state: Assembly, tell: (state: Assembly) => void): void {
    const place = state.queue?.position;
    if (place !== undefined && this.assembly.value.queue === null) announce(`Waiting, place ${place} in the queue.`);
    this.assembly.value = state;
    tell(state);
  }
}

const world: World = {
  fetch: (path, init) => fetch(path, init),
  sleep: untilTimeOrNetwork,
  dice: Math.random,
};

function untilTimeOrNetwork(ms: number, cancel: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      removeEventListener("online", wake);
      document.removeEventListener("visibilitychange", whenVisible);
      cancel.removeEventListener("abort", wake);
      resolve();
    };
    const whenVisible = () => {
      if (!document.hidden) wake();
    };
    const timer = setTimeout(wake, ms);
    addEventListener("online", wake);
    document.addEventListener("visibilitychange", whenVisible);
    cancel.addEventListener("abort", wake);
  });
}
