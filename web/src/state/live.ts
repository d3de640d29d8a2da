/** A reply under way: its stream, followed in the background until it ends or is let go. */
import { signal } from "@preact/signals";
import { t } from "../i18n";
import { EMPTY, type Assembly } from "../stream/assembly";
import { follow, type Link, type Outcome, type Turn } from "../stream/follow";
import type { Meta } from "../wire";
import { announce } from "./announce";
import { world } from "./world";

export class LiveReply {
  readonly assembly = signal<Assembly>(EMPTY);
  readonly link = signal<Link>("connecting");
  readonly stopping = signal(false);
  readonly viewKey: string;
  named: Meta | null = null;
  messageId: string | null = null;
  /** Its id at the server as soon as that is known; null: it has ended without ever having one. */
  readonly whenNamed: Promise<string | null>;
  private tellName: (id: string | null) => void = () => {};
  private readonly control = new AbortController();

  /**
   * `stored` is shown until the stream has caught up with it, so that the answer never shrinks.
   * `quiet`: it is over already, and only read again for what the store does not tell.
   */
  constructor(readonly key: string, readonly stored = "", readonly quiet = false) {
    this.viewKey = key;
    this.whenNamed = new Promise((resolve) => (this.tellName = resolve));
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
    this.tellName(this.messageId);
  }

  async follow(turn: Turn, tell: (state: Assembly) => void, named: (messageId: string) => void): Promise<Outcome> {
    if (turn.messageId !== null) this.took(turn.messageId, () => {});
    const sink = {
      assembly: (state: Assembly) => this.grow(state, tell),
      link: (link: Link) => (this.link.value = link),
      named: (id: string) => this.took(id, named),
    };
    const outcome = await follow(turn, sink, world(), this.signal);
    this.tellName(this.messageId);
    return outcome;
  }

  private took(id: string, tell: (messageId: string) => void): void {
    this.messageId = id;
    tell(id);
    this.tellName(id);
  }

  private grow(state: Assembly, tell: (state: Assembly) => void): void {
    const place = state.queue?.position;
    if (place !== undefined && this.assembly.value.queue === null) announce(t("Waiting, place {place} in the queue.", { place }));
    this.assembly.value = state;
    if (state.meta !== null && this.messageId === null) this.took(state.meta.messageId, () => {});
    tell(state);
  }
}
