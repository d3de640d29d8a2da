/**
 * One conversation: its messages, the branch on screen and the turns under way. The server owns the
 * messages; this is a copy that is merged by message id and never written back.
 */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { call, callUntilAnswered, Refused, sentence, sentenceOf } from "../api";
import { childrenOf, pathOf, ROOT, type Choices } from "../chat/tree";
import { newTurnId } from "../ids";
import type { Assembly } from "../stream/assembly";
import type { Turn } from "../stream/follow";
import type { Conversation, Message, MessagePage, MessageStatus, Problem, Rating } from "../wire";
import { announce } from "./announce";
import { conversations, put, refreshList } from "./conversations";
import { setDraft, draftOf, UNKEPT } from "./drafts";
import { LiveReply } from "./live";
import { recallFrom, rememberIn } from "./memory";
import { named, route } from "./route";
import { account, refreshAccount } from "./session";
import { toast } from "./toasts";

const PAGE = 50;

export interface Shown extends Message {
  viewKey: string; // stays the same when the server's id replaces the page's
  live: LiveReply | null;
  refusal: string | null; // what is said instead of the rest; only the stream tells it
}

export class Chat {
  readonly id: Signal<string | null>;
  readonly messages = signal<ReadonlyMap<string, Shown>>(new Map());
  readonly choices: Signal<Choices>;
  readonly head = signal<string | null>(null);
  readonly nextBefore = signal<string | null>(null);
  readonly state = signal<"empty" | "loading" | "ready" | "failed" | "gone">("empty");
  readonly problem = signal<{ text: string; problem: Problem | null } | null>(null);
  readonly path: ReadonlySignal<Shown[]>;
  readonly running: ReadonlySignal<LiveReply | null>; // on the branch on screen
  readonly siblings = computed(() => childrenOf([...this.messages.value.values()]));
  private creating: Promise<string> | null = null;

  /** `temporary`: the server keeps nothing of it, and neither does the browser once it is left. */
  constructor(id: string | null, readonly temporary = false) {
    this.id = signal(id);
    this.choices = signal(id === null ? {} : recallFrom<Choices>(branchesKey(), id, {}));
    this.path = computed(() => pathOf([...this.messages.value.values()], this.choices.value, this.head.value));
    this.running = computed(() => this.path.value.find((one) => one.live?.quiet === false)?.live ?? null);
    if (id === null) this.state.value = "ready";
  }

  /** Fetches the newest messages and follows a reply that is under way; what is shown stays meanwhile. */
  async load(): Promise<void> {
    const id = this.id.value;
    if (id === null || this.state.value === "loading") return;
    const first = this.state.value !== "ready";
    // The answer to a post that is on its way would be taken for another message.
    if (!first && this.liveReplies.some((live) => live.nameless)) return;
    if (first) this.state.value = "loading";
    try {
      const [conversation, page] = await Promise.all([
        call<Conversation>("GET", `/v1/conversations/${id}`),
        call<MessagePage>("GET", `/v1/conversations/${id}/messages?limit=${PAGE}`),
      ]);
      batch(() => {
        put(conversation);
        this.merge(page.items);
        if (first) this.nextBefore.value = page.nextBefore;
        if (first || this.running.value === null) this.head.value = conversation.headMessageId ?? null;
        this.state.value = "ready";
        this.followRunning(conversation.activeMessageId);
        this.stayOnBranch();
      });
    } catch (error) {
      const gone = error instanceof Refused && error.problem.status === 404;
      if (first || gone) this.state.value = gone ? "gone" : "failed";
    }
  }

  async loadOlder(): Promise<void> {
    const before = this.nextBefore.value;
    if (before === null) return;
    try {
      const params = new URLSearchParams({ limit: String(PAGE), before });
      const page = await call<MessagePage>("GET", `/v1/conversations/${this.id.value}/messages?${params}`);
      this.merge(page.items);
      this.nextBefore.value = page.nextBefore;
    } catch (error) {
      toast(sentenceOf(error), "bad");
    }
  }

  /** Sends a message below `parentId`. The new branch is on screen before the first word. */
  send(content: string, parentId: string | null, model: string): void {
    const key = newTurnId();
    const localId = `local_${key}`;
    const live = this.newLive(key);
    const seq = this.nextSeq();
    this.problem.value = null;
    this.place([
      { ...blank(localId, parentId, seq, "user"), content, status: "completed", viewKey: localId },
      { ...blank(key, localId, seq + 1, "assistant"), requested: model, live, viewKey: key },
    ]);
    this.choose({ [parentId ?? ROOT]: localId });
    void this.runTurn(live, localId, content, parentId, model);
  }

  regenerate(reply: Shown, model: string): void {
    const key = newTurnId();
    const live = this.newLive(key);
    this.problem.value = null;
    this.place([{ ...blank(key, reply.parentId, this.nextSeq(), "assistant"), requested: model, live, viewKey: key }]);
    this.choose({ [reply.parentId ?? ROOT]: key });
    const post = this.temporary
      ? this.wholePost(live, model)
      : { path: `/v1/messages/${encodeURIComponent(reply.id)}/regenerate`, body: { model }, key };
    void this.follow(live, { post, messageId: null }, () => this.takeBack([live.viewKey], null));
  }

  /** Ends the reply on the server and keeps what it had said. */
  async stop(live: LiveReply): Promise<void> {
    if (live.stopping.value) return;
    live.stopping.value = true;
    try {
      const message = await this.stopOnServer(live);
      live.leave();
      if (message === null) this.takeBack([live.viewKey], live.viewKey);
      else this.rename(live.viewKey, message.id, message.parentId, { ...message, live: null });
      this.markRunning(null);
      announce("Answer stopped.");
      void refreshAccount();
    } catch (error) {
      live.stopping.value = false;
      toast(sentenceOf(error), "bad");
    }
  }

  async rate(message: Shown, rating: Rating): Promise<void> {
    const before = message.feedback;
    this.update(message.viewKey, { feedback: rating });
    try {
      await call("POST", `/v1/messages/${encodeURIComponent(message.id)}/feedback`, { rating });
    } catch (error) {
      this.update(message.viewKey, { feedback: before });
      toast(sentenceOf(error), "bad");
    }
  }

  /** Shows a sibling, with the turns that followed it. */
  choose(changed: Choices): void {
    this.choices.value = { ...this.choices.value, ...changed };
    this.stayOnBranch();
    this.saveChoices();
  }

  /** Where what is typed here is kept. */
  get draftPlace(): string {
    return this.id.value ?? (this.temporary ? UNKEPT : "new");
  }

  leaf(): Shown | null {
    return this.path.value[this.path.value.length - 1] ?? null;
  }

  get liveReplies(): LiveReply[] {
    return [...this.messages.value.values()].flatMap((one) => (one.live === null ? [] : [one.live]));
  }

  /** Lets go of a stream that is not on screen; it is followed from its start when the chat is opened. */
  letGo(live: LiveReply): void {
    live.leave();
    this.update(live.viewKey, { live: null });
    this.state.value = "empty";
  }

  private async runTurn(
    live: LiveReply, localId: string, content: string, parentId: string | null, model: string,
  ): Promise<void> {
    const takeBack = () => this.takeBack([live.viewKey, localId], null, content);
    try {
      if (this.temporary) return await this.follow(live, { post: this.wholePost(live, model), messageId: null }, takeBack);
      const id = await this.ensureCreated(live);
      if (live.signal.aborted) return;
      const post = { path: `/v1/conversations/${id}/messages`, body: { content, parentId, model }, key: live.key };
      await this.follow(live, { post, messageId: null }, takeBack);
    } catch (error) {
      this.creating = null;
      if (live.signal.aborted) return;
      takeBack();
      this.complain(sentenceOf(error), error instanceof Refused ? error.problem : null);
    }
  }

  // Nobody else has a temporary chat: all that was said goes along, but for questions without an answer.
  private wholePost(live: LiveReply, model: string): Turn["post"] {
    const path = this.path.value;
    const before = path.slice(0, path.findIndex((one) => one.viewKey === live.viewKey));
    const kept = before.filter((one, at) => {
      const reply = one.role === "assistant" ? one : before[at + 1];
      return reply === undefined || (reply.content !== "" && (reply.status === "completed" || reply.status === "stopped"));
    });
    const messages = kept.map(({ role, content }) => ({ role, content }));
    return { path: "/v1/temporary/messages", body: { messages, model }, key: live.key };
  }

  // One conversation however often the first message is sent: its key is made once.
  private ensureCreated(live: LiveReply): Promise<string> {
    if (this.id.value !== null) return Promise.resolve(this.id.value);
    this.creating ??= callUntilAnswered<Conversation>("POST", "/v1/conversations", {}, newTurnId(), live.signal).then(
      (made) => {
        const onScreen = current.value === this;
        batch(() => {
          this.id.value = made.id;
          chats.set(made.id, this);
          put({ ...made, activeMessageId: live.key });
          if (onScreen) this.moveDraft(made.id);
          if (onScreen) named(made.id);
          if (fresh.value === this) fresh.value = new Chat(null);
        });
        return made.id;
      },
    );
    return this.creating;
  }

  // What was typed while the conversation was being made belongs to it.
  private moveDraft(id: string): void {
    const typed = draftOf("new");
    setDraft("new", "");
    if (typed !== "") setDraft(id, typed);
  }

  private newLive(key: string): LiveReply {
    const live = new LiveReply(key);
    boundStreams(live);
    return live;
  }

  private async follow(live: LiveReply, turn: Turn, takeBack: () => void): Promise<void> {
    if (turn.messageId !== null) live.messageId = turn.messageId;
    const outcome = await live.follow(
      turn,
      (state) => this.nameLive(live, state),
      (id) => this.rename(live.viewKey, id, null, {}),
    );
    if (outcome.kind === "ended") this.finish(live);
    if (outcome.kind === "refused") {
      takeBack();
      this.complain(sentence(outcome.problem), outcome.problem);
    }
    if (outcome.kind === "signed_out") {
      if (live.nameless) takeBack();
      else this.letGo(live);
      account.value = null;
    }
    if (outcome.kind === "gone") {
      // What the store has of it takes the place of what the page has.
      const asked = this.messages.value.get(this.byView(live.viewKey)?.parentId ?? "")?.viewKey ?? "";
      if (live.named === null) this.takeBack([live.viewKey, ...(asked.startsWith("local_") ? [asked] : [])], null);
      else this.update(live.viewKey, { live: null, status: "completed", content: live.text });
      await this.load();
    }
    if (outcome.kind !== "left") void refreshAccount();
  }

  // The server's ids replace the page's own as soon as they are known.
  private nameLive(live: LiveReply, state: Assembly): void {
    const meta = state.meta;
    if (meta === null || live.named === meta) return;
    live.named = meta;
    if (live.quiet) return;
    const { model, requested, reason, notices } = meta;
    this.rename(live.viewKey, meta.messageId, meta.userMessageId, { status: "running", model, requested, reason, notices });
    announce("Answer started.");
    this.markRunning(meta.messageId);
    if (this.messages.value.size <= 2 && !this.temporary) void refreshList(); // the first words have given it a title
  }

  private rename(viewKey: string, replyId: string, userId: string | null, fields: Partial<Shown>): void {
    const reply = this.byView(viewKey);
    if (reply === undefined) return;
    const asked = reply.parentId === null ? undefined : this.messages.value.get(reply.parentId);
    const next = new Map(this.messages.value);
    next.delete(reply.id);
    if (asked !== undefined && userId) {
      next.delete(asked.id);
      next.set(userId, { ...asked, id: userId });
    }
    next.set(replyId, { ...reply, ...fields, id: replyId, parentId: userId || reply.parentId });
    batch(() => {
      this.renameChoices({ [reply.id]: replyId, ...(asked && userId ? { [asked.id]: userId } : {}) });
      this.messages.value = next;
    });
  }

  private finish(live: LiveReply): void {
    const state = live.assembly.value;
    const reply = this.byView(live.viewKey);
    if (reply === undefined) return;
    batch(() => {
      this.update(live.viewKey, {
        live: null,
        content: state.text,
        refusal: state.refusal?.text ?? null,
        status: statusOf(state),
        finish: state.finish,
        error: state.failure,
      });
      if (this.leaf()?.viewKey === live.viewKey) this.head.value = reply.id;
      this.markRunning(null);
    });
    if (live.quiet) return;
    announce(state.failure !== null ? `The answer failed: ${state.failure.message}` : "Answer finished.");
    if (this.temporary) return;
    void refreshList();
    // The title is made beside the chat, a moment after the first answer.
    if (this.messages.value.size <= 4) setTimeout(() => void refreshList(), 4_000);
  }

  private markRunning(messageId: string | null): void {
    const id = this.id.value;
    if (id === null) return;
    const known = conversations.value.find((one) => one.id === id);
    if (known !== undefined) put({ ...known, activeMessageId: messageId });
  }

  private followRunning(activeId: string | null): void {
    const items = [...this.messages.value.values()];
    for (const one of items) {
      if (one.role !== "assistant" || one.live !== null) continue;
      if (isUnderWay(one.status) || (one.status === "refused" && one.refusal === null)) this.attach(one);
    }
    if (activeId !== null && !items.some((one) => one.id === activeId || one.live?.key === activeId)) {
      const leaf = this.leaf();
      this.attach({ ...blank(activeId, leaf?.id ?? null, this.nextSeq(), "assistant"), viewKey: activeId });
    }
  }

  // From the start and without an id: exact whatever the page knew before.
  private attach(message: Shown): void {
    const live = new LiveReply(message.viewKey, message.content, message.status === "refused");
    boundStreams(live);
    this.place([{ ...message, live }]);
    void this.follow(live, { post: null, messageId: message.id }, () => {});
  }

  private async stopOnServer(live: LiveReply): Promise<Message | null> {
    const id = live.messageId ?? live.assembly.value.meta?.messageId ?? this.byView(live.viewKey)?.id ?? live.key;
    try {
      return await call<Message>("POST", `/v1/messages/${encodeURIComponent(id)}/stop`);
    } catch (error) {
      const unknown = error instanceof Refused && error.problem.status === 404;
      if (!unknown || live.assembly.value.meta !== null || this.id.value === null) {
        if (unknown || this.id.value === null) return null;
        throw error;
      }
      const conversation = await call<Conversation>("GET", `/v1/conversations/${this.id.value}`);
      if (conversation.activeMessageId === null) return null; // it has never got there
      return await call<Message>("POST", `/v1/messages/${encodeURIComponent(conversation.activeMessageId)}/stop`);
    }
  }

  private merge(items: Message[]): void {
    for (const item of items) {
      const known = this.messages.value.get(item.id);
      if (known?.live && known.parentId?.startsWith("local_")) this.rename(known.viewKey, item.id, item.parentId, {});
    }
    const next = new Map(this.messages.value);
    for (const item of items) {
      const known = next.get(item.id);
      if (known?.live) next.set(item.id, { ...known, parentId: item.parentId, seq: item.seq });
      else next.set(item.id, { ...item, notices: item.notices ?? [], live: null, refusal: known?.refusal ?? null, viewKey: known?.viewKey ?? item.id });
    }
    this.messages.value = next;
  }

  private place(items: Shown[]): void {
    const next = new Map(this.messages.value);
    for (const item of items) next.set(item.id, item);
    this.messages.value = next;
  }

  private update(viewKey: string, fields: Partial<Shown>): void {
    const known = this.byView(viewKey);
    if (known === undefined) return;
    const next = new Map(this.messages.value);
    next.delete(known.id);
    const changed = { ...known, ...fields };
    next.set(changed.id, changed);
    this.messages.value = next;
  }

  private takeBack(viewKeys: string[], stopped: string | null, draft?: string): void {
    const next = new Map(this.messages.value);
    const drop = new Set(viewKeys);
    if (stopped !== null) {
      const parent = this.byView(stopped)?.parentId;
      if (parent?.startsWith("local_")) {
        drop.add(parent);
        draft = next.get(parent)?.content;
      }
    }
    for (const [id, one] of next) if (drop.has(one.viewKey)) next.delete(id);
    this.messages.value = next;
    const place = this.draftPlace;
    if (draft !== undefined && draftOf(place) === "") setDraft(place, draft);
  }

  private complain(text: string, problem: Problem | null): void {
    this.problem.value = { text, problem };
    announce(text);
  }

  private byView(viewKey: string): Shown | undefined {
    for (const one of this.messages.value.values()) if (one.viewKey === viewKey) return one;
    return undefined;
  }

  private nextSeq(): number {
    let highest = 0;
    for (const one of this.messages.value.values()) highest = Math.max(highest, one.seq);
    return highest + 1;
  }

  // The way that is on screen is the reader's choice: a sibling made elsewhere does not move it.
  private stayOnBranch(): void {
    const way = Object.fromEntries(this.path.value.map((one) => [one.parentId ?? ROOT, one.id]));
    this.choices.value = { ...this.choices.value, ...way };
  }

  private renameChoices(names: Record<string, string>): void {
    const entries = Object.entries(this.choices.value);
    this.choices.value = Object.fromEntries(entries.map(([from, to]) => [names[from] ?? from, names[to] ?? to]));
    this.saveChoices();
  }

  private saveChoices(): void {
    const id = this.id.value;
    if (id === null) return;
    const forks = Object.entries(this.choices.value).filter(([from]) => (this.siblings.value.get(from)?.length ?? 0) > 1);
    if (forks.length > 0) rememberIn(branchesKey(), id, Object.fromEntries(forks));
  }
}

const MOST_CHATS = 30; // kept whole in memory; older ones are fetched again
const MOST_STREAMS = 4; // a browser opens six connections to one HTTP/1.1 server

const chats = new Map<string, Chat>();
const fresh = signal(new Chat(null));

/** The conversation on screen. */
export const current = computed<Chat>(() => {
  const id = route.value;
  return id === null ? fresh.value : chatOf(id);
});

export function newChat(): void {
  if (fresh.value.messages.value.size > 0 || fresh.value.temporary) leaveFresh(new Chat(null));
}

/** A new chat that is not kept, or back to one that is. */
export function switchTemporary(): void {
  leaveFresh(new Chat(null, !fresh.value.temporary));
}

function leaveFresh(next: Chat): void {
  const left = fresh.value;
  if (left.temporary) left.liveReplies.forEach((live) => live.leave());
  if (left.temporary !== next.temporary) {
    setDraft(next.draftPlace, draftOf(left.draftPlace));
    setDraft(left.draftPlace, "");
  }
  fresh.value = next;
}

export function forget(id: string): void {
  chats.get(id)?.liveReplies.forEach((live) => live.leave());
  chats.delete(id);
}

function chatOf(id: string): Chat {
  const known = chats.get(id);
  if (known !== undefined) return known;
  for (const [old, chat] of chats) {
    if (chats.size < MOST_CHATS) break;
    if (chat.liveReplies.length === 0) chats.delete(old);
  }
  const chat = new Chat(id);
  chats.set(id, chat);
  return chat;
}

function boundStreams(newest: LiveReply): void {
  const streams = [...chats.values()].flatMap((chat) => chat.liveReplies.map((live) => ({ chat, live })));
  const others = streams.filter(({ chat, live }) => live !== newest && chat !== current.peek());
  for (const { chat, live } of others.slice(0, Math.max(0, streams.length + 1 - MOST_STREAMS))) chat.letGo(live);
}

function branchesKey(): string {
  return `branches.${account.peek()?.id ?? ""}`;
}

function isUnderWay(status: MessageStatus): boolean {
  return status === "queued" || status === "running";
}

function statusOf(state: Assembly): MessageStatus {
  if (state.failure !== null) return "failed";
  if (state.refusal !== null || state.finish === "refused") return "refused";
  return state.finish === "stopped" || state.finish === "abandoned" ? "stopped" : "completed";
}

function blank(id: string, parentId: string | null, seq: number, role: "user" | "assistant"): Shown {
  return {
    id, parentId, seq, role, content: "", model: null, requested: null, reason: null, status: "queued",
    finish: null, notices: [], feedback: null, createdAt: new Date().toISOString(), error: null,
    viewKey: id, live: null, refusal: null,
  };
}
