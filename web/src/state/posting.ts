/**
 * How a question, or the wish for another answer, comes to the server. The conversation is made on the way, once,
 * however often its first message is sent; a temporary chat has none, and takes all that was said along.
 */
import type { Signal } from "@preact/signals";
import { callUntilAnswered } from "../api";
import type { Shown } from "../chat/shown";
import { newTurnId } from "../ids";
import type { Turn } from "../stream/follow";
import type { Conversation } from "../wire";
import type { LiveReply } from "./live";
import type { Thread } from "./thread";

export type Post = NonNullable<Turn["post"]>;

export interface Ask {
  content: string;
  parentId: string | null;
  model: string;
  key: string;
}

export class Posting {
  private creating: { by: LiveReply; id: Promise<string> } | null = null;
  private readonly creation = newTurnId();

  /** `made` is called when the server has made the conversation, and before its first message is sent. */
  constructor(
    private readonly id: Signal<string | null>,
    private readonly thread: Thread,
    private readonly temporary: boolean,
    private readonly made: (conversation: Conversation, first: LiveReply) => void,
  ) {}

  /** Null: it was stopped before there was a conversation to send it to. */
  async ofQuestion(live: LiveReply, { content, parentId, model, key }: Ask): Promise<Post | null> {
    if (this.temporary) return this.ofAll(live, model);
    const id = await this.conversation(live);
    return live.signal.aborted ? null : { path: `/v1/conversations/${id}/messages`, body: { content, parentId, model }, key };
  }

  ofAnotherAnswer(live: LiveReply, to: Shown, model: string): Post {
    if (this.temporary) return this.ofAll(live, model);
    return { path: `/v1/messages/${encodeURIComponent(to.id)}/regenerate`, body: { model }, key: live.key };
  }

  // Questions without an answer are left out: a model takes turns.
  private ofAll(live: LiveReply, model: string): Post {
    const path = this.thread.path.value;
    const before = path.slice(0, path.findIndex((one) => one.viewKey === live.viewKey));
    const kept = before.filter((one, at) => {
      const reply = one.role === "assistant" ? one : before[at + 1];
      return reply === undefined || (reply.content !== "" && (reply.status === "completed" || reply.status === "stopped"));
    });
    const messages = kept.map(({ role, content }) => ({ role, content }));
    return { path: "/v1/temporary/messages", body: { messages, model }, key: live.key };
  }

  // A creation whose message was stopped is of no use to the next one, which has the same key for it.
  private conversation(live: LiveReply): Promise<string> {
    if (this.id.value !== null) return Promise.resolve(this.id.value);
    if (this.creating === null || this.creating.by.signal.aborted) this.creating = { by: live, id: this.create(live) };
    return this.creating.id;
  }

  private async create(live: LiveReply): Promise<string> {
    try {
      const conversation = await callUntilAnswered<Conversation>("POST", "/v1/conversations", {}, this.creation, live.signal);
      if (this.id.value === null) this.made(conversation, live);
      return conversation.id;
    } catch (error) {
      if (this.creating?.by === live) this.creating = null;
      throw error;
    }
  }
}
