/**
 * The turns under way in one conversation: each is followed to its end, gets the server's ids when these are
 * known, and becomes a message like any other.
 */
import { call, Refused } from "../api";
import { blank, isUnderWay, statusOf, type Shown } from "../chat/shown";
import { t } from "../i18n";
import type { Assembly } from "../stream/assembly";
import type { Turn } from "../stream/follow";
import type { Message, Problem } from "../wire";
import { announce } from "./announce";
import { LiveReply } from "./live";
import { account, refreshAccount } from "./session";
import type { Thread } from "./thread";

/** What a conversation does when something becomes of one of its turns. */
export interface Owner {
  began(live: LiveReply): void;
  named(live: LiveReply, from: string, to: string): void;
  ended(reply: Shown, live: LiveReply): void;
  reload(): Promise<void>;
}

/** How a turn that was not taken in is taken back: its words go where they can be sent again. */
export type TakeBack = (problem: Problem | null) => void;

export class Turns {
  constructor(private readonly thread: Thread, private readonly owner: Owner) {}

  get live(): LiveReply[] {
    return [...this.thread.messages.value.values()].flatMap((one) => (one.live === null ? [] : [one.live]));
  }

  /** A reply that is about to be asked for, and its place below `parentId`. */
  begin(key: string, parentId: string | null, seq: number, model: string): { live: LiveReply; reply: Shown } {
    const live = new LiveReply(key);
    this.owner.began(live);
    return { live, reply: { ...blank(key, parentId, seq, "assistant"), requested: model, live, viewKey: key } };
  }

  /** Follows what is under way in what the server has told. From the start, so exact whatever was known before. */
  attach(items: readonly Message[]): void {
    for (const { id } of items) {
      const one = this.thread.messages.value.get(id);
      if (one === undefined || one.role !== "assistant" || one.live !== null) continue;
      const isQuiet = one.status === "refused";
      if (!isUnderWay(one.status) && !(isQuiet && one.refusal === null)) continue;
      const live = new LiveReply(one.viewKey, one.content, isQuiet);
      this.owner.began(live);
      this.thread.update(one.viewKey, { live });
      void this.follow(live, { post: null, messageId: id }, () => {});
    }
  }

  async follow(live: LiveReply, turn: Turn, takeBack: TakeBack): Promise<void> {
    const outcome = await live.follow(
      turn,
      (state) => this.name(live, state),
      (id) => this.rename(live, id, null, {}),
    );
    if (outcome.kind === "ended") this.finish(live);
    if (outcome.kind === "refused") takeBack(outcome.problem);
    if (outcome.kind === "signed_out") {
      if (live.nameless) takeBack(null);
      else this.letGo(live);
      account.value = null;
    }
    if (outcome.kind === "gone") {
      // What the store has of it takes the place of what the page has.
      const asked = this.thread.messages.value.get(this.thread.byView(live.viewKey)?.parentId ?? "")?.viewKey ?? "";
      if (live.named === null) this.thread.drop([live.viewKey, ...(asked.startsWith("local_") ? [asked] : [])]);
      else this.thread.update(live.viewKey, { live: null, status: "completed", content: live.text });
      await this.owner.reload();
    }
    if (outcome.kind !== "left") void refreshAccount();
  }

  /**
   * Ends a reply at the server, which keeps what it had said. A stop that is quicker than its message waits
   * until that has arrived; null: it never did.
   */
  async stop(live: LiveReply): Promise<Message | null> {
    const known = live.signal.aborted ? await live.whenNamed : (live.messageId ?? live.key);
    const message = known === null ? null : ((await this.stopAs(known)) ?? (await this.stopLater(live, known)));
    if (message === null) return null;
    live.leave();
    const { seq: _, ...fields } = message; // a reply of no conversation has none of its own
    this.rename(live, message.id, message.parentId, { ...fields, live: null });
    return message;
  }

  private async stopLater(live: LiveReply, triedAs: string): Promise<Message | null> {
    const id = await live.whenNamed;
    return id === null || id === triedAs ? null : await this.stopAs(id);
  }

  private async stopAs(name: string): Promise<Message | null> {
    try {
      return await call<Message>("POST", `/v1/messages/${encodeURIComponent(name)}/stop`);
    } catch (error) {
      if (error instanceof Refused && error.problem.status === 404) return null;
      throw error;
    }
  }

  /** Lets go of a stream; the reply is followed from its start when the chat is opened again. */
  letGo(live: LiveReply): void {
    live.leave();
    this.thread.update(live.viewKey, { live: null });
  }

  // The server's ids replace the page's own as soon as they are known.
  private name(live: LiveReply, state: Assembly): void {
    const meta = state.meta;
    if (meta === null || live.named === meta) return;
    const isFirst = live.named === null;
    live.named = meta;
    if (live.quiet) return;
    const { model, requested, reason, notices } = meta;
    this.rename(live, meta.messageId, meta.userMessageId, { status: "running", model, requested, reason, notices });
    if (isFirst) announce(t("Answer started."));
  }

  private rename(live: LiveReply, id: string, userId: string | null, fields: Partial<Shown>): void {
    const from = this.thread.byView(live.viewKey)?.id ?? live.key;
    this.thread.rename(live.viewKey, id, userId, fields);
    this.owner.named(live, from, id);
  }

  private finish(live: LiveReply): void {
    const state = live.assembly.value;
    if (this.thread.byView(live.viewKey) === undefined) return;
    this.thread.update(live.viewKey, {
      live: null,
      content: state.text,
      refusal: state.refusal?.text ?? null,
      status: statusOf(state),
      finish: state.finish,
      error: state.failure,
    });
    const reply = this.thread.byView(live.viewKey)!;
    if (live.quiet) return;
    announce(state.failure !== null ? t("The answer failed: {reason}", { reason: state.failure.message }) : t("Answer finished."));
    this.owner.ended(reply, live);
  }
}
