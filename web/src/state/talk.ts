/** One conversation: what is shown of it, what can be done in it, and what is still to be sent. */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { call, callUntilAnswered, Refused, sentence, sentenceOf } from "../api";
import type { Version } from "../chat/branch";
import { blank, type Shown } from "../chat/shown";
import { t } from "../i18n";
import { newTurnId } from "../ids";
import type { Conversation, MessagePage, Problem, Rating } from "../wire";
import { announce } from "./announce";
import { put } from "./conversations";
import { UNKEPT } from "./drafts";
import type { LiveReply } from "./live";
import { refreshAccount } from "./session";
import { Thread } from "./thread";
import { toast } from "./toasts";
import { Turns, type TakeBack } from "./turns";
import { Line, type Waiting } from "./waiting";

const PAGE = 50;

/** Where the conversations of the page are kept, and what else of it hears of them. */
export interface House {
  made(chat: Chat, conversation: Conversation): void;
  began(chat: Chat, live: LiveReply): void;
  isRunning(chat: Chat, messageId: string | null): void;
  asked(chat: Chat): void; // a turn of this tab has been taken in
  ended(chat: Chat): void;
  giveBack(chat: Chat, content: string): boolean; // to where messages are written; false: something else is there
}

interface Ask {
  content: string;
  parentId: string | null;
  model: string;
  key: string;
}

export class Chat {
  readonly id: Signal<string | null>;
  readonly thread = new Thread();
  readonly line: Line;
  readonly turns: Turns;
  readonly path: ReadonlySignal<Shown[]> = this.thread.path;
  readonly state = signal<"empty" | "loading" | "ready" | "failed" | "gone">("empty");
  readonly problem = signal<{ text: string; problem: Problem | null } | null>(null);
  readonly running: ReadonlySignal<LiveReply | null>; // on the branch on screen
  /** What is to be sent below the branch on screen, or below no reply that is known. */
  readonly waiting = computed(() => {
    const leaf = this.leaf();
    const lost = this.line.items.value.filter(({ after }) => !this.line.items.value.some(({ key }) => key === after) && !this.thread.messages.value.has(after));
    return [...lost.flatMap((one) => [one, ...this.line.below(one.key)]), ...(leaf === null ? [] : this.line.below(leaf.id))];
  });
  /** The message before which older ones can be read; null: the branch begins here. */
  readonly nextBefore: ReadonlySignal<string | null>;
  private creating: Promise<string> | null = null;
  private readonly creation = newTurnId();

  /** `temporary`: the server keeps nothing of it, and neither does the browser once it is left. */
  constructor(id: string | null, private readonly house: House, readonly temporary = false) {
    this.id = signal(id);
    this.line = new Line(id);
    this.running = computed(() => this.path.value.find((one) => one.live?.quiet === false)?.live ?? null);
    this.nextBefore = computed(() => {
      const first = this.path.value[0];
      return first === undefined || first.parentId === null ? null : first.id;
    });
    this.turns = new Turns(this.thread, {
      began: (live) => house.began(this, live),
      named: (live, from, to) => this.wasNamed(live, from, to),
      ended: (reply) => this.hasEnded(reply),
      reload: () => this.load(),
    });
    if (id === null) this.state.value = "ready";
  }

  /** Where what is typed here is kept. */
  get draftPlace(): string {
    return this.id.value ?? (this.temporary ? UNKEPT : "new");
  }

  leaf(): Shown | null {
    return this.thread.last();
  }

  get liveReplies(): LiveReply[] {
    return this.turns.live;
  }

  /**
   * Fetches the newest messages of the branch on screen (at first: of the one that was shown last, on any
   * device), and follows a reply that is under way. What is shown stays meanwhile, and so does the branch.
   */
  async load(): Promise<void> {
    const id = this.id.value;
    if (id === null || this.state.value === "loading") return;
    const first = this.state.value !== "ready";
    // The answer to a post that is on its way would be taken for another message.
    const isBusy = () => !first && this.turns.live.some((live) => live.nameless);
    if (isBusy()) return;
    if (first) this.state.value = "loading";
    const through = (first ? null : this.leaf()?.id) ?? "head";
    try {
      const [conversation, page] = await Promise.all([
        call<Conversation>("GET", `/v1/conversations/${id}`),
        this.pageOf(through),
      ]);
      if (isBusy()) return;
      batch(() => {
        put(conversation);
        this.take(page, first || (this.leaf()?.id ?? "head") === through ? "show" : "keep");
        this.state.value = "ready";
        // An answer that ended while nobody looked: what waited for it waits for a word of the person.
        if (first && this.line.items.value.length > 0) this.line.held.value = this.running.value === null;
      });
    } catch (error) {
      const isGone = error instanceof Refused && error.problem.status === 404;
      if (first || isGone) this.state.value = isGone ? "gone" : "failed";
    }
  }

  async loadOlder(): Promise<void> {
    const before = this.nextBefore.value;
    if (before === null) return;
    try {
      this.thread.merge((await this.pageOf("head", before)).items);
    } catch (error) {
      toast(sentenceOf(error), "bad");
    }
  }

  /** Sends a message below `parentId`. The new branch is on screen before the first word. */
  send(content: string, parentId: string | null, model: string): void {
    this.begin({ content, parentId, model, key: newTurnId() }, (problem) => {
      if (problem?.code === "conversation_busy") void this.waitForOther(content, model, problem);
      else this.giveBack(content, model);
    });
  }

  /** Sends a question anew, beside the old one. An answer to it that is under way is stopped before. */
  async edit(of: Shown, content: string, model: string): Promise<void> {
    const answer = this.thread.children.value.get(of.id)?.find((one) => one.live?.quiet === false);
    if (answer?.live) {
      this.hold();
      await this.stop(answer.live);
    }
    this.begin({ content, parentId: of.parentId, model, key: newTurnId() }, () => this.giveBack(content, model));
  }

  /** Keeps a message until the answer on screen has ended. False: enough of them wait already. */
  sendLater(content: string, model: string): boolean {
    const leaf = this.leaf();
    if (leaf === null || this.line.isFull) return false;
    this.line.add(content, model, leaf.id);
    return true;
  }

  /** Sends what waits, below the branch on screen, although nobody waits for an answer any more. */
  sendWaiting(): void {
    this.line.held.value = false;
    const next = this.waiting.value[0];
    if (this.running.value === null && next !== undefined) this.sendWaiter(next, this.leaf()?.id ?? null);
  }

  regenerate(of: Shown, model: string): void {
    const { live, reply } = this.turns.begin(newTurnId(), of.parentId, this.thread.nextSeq(), model);
    this.problem.value = null;
    this.thread.grow([reply]);
    const post = this.temporary
      ? this.wholePost(live, model)
      : { path: `/v1/messages/${encodeURIComponent(of.id)}/regenerate`, body: { model }, key: live.key };
    void this.turns.follow(live, { post, messageId: null }, (problem) => {
      this.thread.drop([live.viewKey]);
      this.complain(problem);
    });
  }

  /** Ends the reply on the server and keeps what it had said. */
  async stop(live: LiveReply): Promise<void> {
    if (live.stopping.value) return;
    live.stopping.value = true;
    if (this.id.value === null && !this.temporary) live.leave(); // nothing of it has been sent
    try {
      const message = await this.turns.stop(live);
      const reply = this.thread.byView(live.viewKey);
      if (message === null) return await this.forgetUnsent(live, reply);
      this.house.isRunning(this, null);
      announce(t("Answer stopped."));
      void refreshAccount();
      if (reply !== undefined) this.sendNext(reply.id);
    } catch (error) {
      live.stopping.value = false;
      toast(sentenceOf(error), "bad");
    }
  }

  async rate(message: Shown, rating: Rating): Promise<void> {
    const before = message.feedback;
    this.thread.update(message.viewKey, { feedback: rating });
    try {
      await call("POST", `/v1/messages/${encodeURIComponent(message.id)}/feedback`, { rating });
    } catch (error) {
      this.thread.update(message.viewKey, { feedback: before });
      toast(sentenceOf(error), "bad");
    }
  }

  versionOf(message: Shown): Version {
    return this.thread.versionOf(message);
  }

  /** Shows a sibling, with the turns that followed it: where that branch was last, on any device. */
  async show(siblingId: string): Promise<void> {
    if (this.thread.messages.value.has(siblingId)) this.thread.show(siblingId);
    const sibling = this.thread.messages.value.get(siblingId);
    if (this.temporary || (sibling !== undefined && sibling.version === undefined)) return; // nobody else has it
    const left = this.thread.leaf.value;
    try {
      const [page] = await Promise.all([
        this.pageOf(siblingId),
        call("PUT", `/v1/conversations/${this.id.value}/head`, { messageId: siblingId }),
      ]);
      batch(() => {
        this.thread.merge(page.items);
        if (this.thread.leaf.value === left) this.thread.show(siblingId);
        if (this.path.value.some((one) => one.id === siblingId)) this.thread.showEnd(page.items.at(-1)?.id ?? siblingId);
        this.turns.attach(page.items);
      });
    } catch (error) {
      if (sibling === undefined || error instanceof Refused) toast(sentenceOf(error), "bad");
    }
  }

  private pageOf(through: string, before: string | null = null): Promise<MessagePage> {
    const page = (branch: string) => {
      const params = new URLSearchParams({ branch, limit: String(PAGE), ...(before === null ? {} : { before }) });
      return call<MessagePage>("GET", `/v1/conversations/${this.id.value}/messages?${params}`);
    };
    if (through === "head") return page(through);
    return page(through).catch((error: unknown) => {
      // Deleted elsewhere: then the branch that is shown there.
      if (error instanceof Refused && error.problem.status === 404) return page("head");
      throw error;
    });
  }

  private take(page: MessagePage, how: "show" | "keep"): void {
    batch(() => {
      this.thread.merge(page.items);
      if (how === "show") this.thread.showEnd(page.items.at(-1)?.id ?? null);
      this.turns.attach(page.items);
    });
  }

  // On the branch on screen it is shown; elsewhere it goes its way unseen.
  private begin(ask: Ask, giveBack: TakeBack): void {
    const localId = `local_${ask.key}`;
    const seq = this.thread.nextSeq();
    const question: Shown = { ...blank(localId, ask.parentId, seq, "user"), content: ask.content, status: "completed", viewKey: localId };
    const { live, reply } = this.turns.begin(ask.key, localId, seq + 1, ask.model);
    this.problem.value = null;
    const parent = ask.parentId;
    if (parent === null || this.path.value.some((one) => one.id === parent)) this.thread.grow([question, reply]);
    else this.thread.place([question, reply]);
    void this.run(live, ask, (problem) => {
      this.thread.drop([live.viewKey, localId]);
      this.complain(problem);
      this.hold();
      giveBack(problem);
    });
  }

  private async run(live: LiveReply, ask: Ask, takeBack: TakeBack): Promise<void> {
    const { content, parentId, model, key } = ask;
    try {
      if (this.temporary) return await this.turns.follow(live, { post: this.wholePost(live, model), messageId: null }, takeBack);
      const id = await this.ensureCreated(live);
      if (live.signal.aborted) return;
      const post = { path: `/v1/conversations/${id}/messages`, body: { content, parentId, model }, key };
      await this.turns.follow(live, { post, messageId: null }, takeBack);
    } catch (error) {
      this.creating = null;
      if (live.signal.aborted) return;
      live.leave();
      takeBack(error instanceof Refused ? error.problem : null);
      if (!(error instanceof Refused)) this.say(sentenceOf(error), null);
    }
  }

  // Nobody else has a temporary chat: all that was said goes along, but for questions without an answer.
  private wholePost(live: LiveReply, model: string): { path: string; body: unknown; key: string } {
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
    this.creating ??= callUntilAnswered<Conversation>("POST", "/v1/conversations", {}, this.creation, live.signal).then((made) => {
      batch(() => {
        this.id.value = made.id;
        if (!this.temporary) this.line.moveTo(made.id);
        this.house.made(this, { ...made, activeMessageId: live.signal.aborted ? null : live.key });
      });
      return made.id;
    });
    return this.creating;
  }

  // It was stopped before it was sent, or never came in: its question is given back.
  private async forgetUnsent(live: LiveReply, reply: Shown | undefined): Promise<void> {
    live.leave();
    const asked = reply?.parentId == null ? undefined : this.thread.messages.value.get(reply.parentId);
    const isLocal = asked?.viewKey === asked?.id && asked?.id.startsWith("local_") === true;
    if (reply !== undefined) this.thread.drop([live.viewKey, ...(isLocal && asked !== undefined ? [asked.viewKey] : [])]);
    if (isLocal && asked !== undefined) this.giveBack(asked.content, reply?.requested ?? "auto");
    this.hold();
    this.house.isRunning(this, null);
    await this.load();
  }

  // What can't be sent is where it was written; if something else is there by now, it waits beside it.
  private giveBack(content: string, model: string): void {
    if (this.house.giveBack(this, content)) return;
    this.line.putBack({ key: newTurnId(), content, model, after: this.leaf()?.id ?? "" });
  }

  // Another device has asked on this branch: its answer is shown, and what was typed here waits for it.
  private async waitForOther(content: string, model: string, problem: Problem): Promise<void> {
    this.line.add(content, model, problem.activeMessageId ?? this.leaf()?.id ?? "");
    await this.load();
    if (this.running.value === null) this.line.held.value = true;
    else this.problem.value = null;
  }

  private wasNamed(live: LiveReply, from: string, to: string): void {
    if (from !== to) this.line.rename(from, to);
    if (live.named === null || live.quiet) return;
    this.house.isRunning(this, to);
    if (from !== to || live.viewKey !== to) this.house.asked(this);
  }

  private hasEnded(reply: Shown): void {
    this.house.isRunning(this, null);
    this.house.ended(this);
    const asked = reply.parentId === null ? undefined : this.thread.messages.value.get(reply.parentId);
    const forked = [reply, asked].some((one) => one !== undefined && this.versionOf(one).count > 1);
    // Which siblings there are is the server's to say: another device may have made some.
    if (forked && !this.temporary) void this.pageOf(reply.id).then((page) => this.take(page, "keep"), () => {});
    if (reply.status === "completed" || reply.status === "stopped") this.sendNext(reply.id);
    else this.hold();
  }

  private sendNext(ended: string): void {
    const next = this.line.below(ended)[0];
    if (next !== undefined && !this.line.held.value) this.sendWaiter(next, ended);
  }

  private sendWaiter(next: Waiting, parentId: string | null): void {
    this.line.take(next.key);
    this.begin({ content: next.content, parentId, model: next.model, key: next.key }, (problem) => this.keepWaiting(next, problem));
  }

  // What waits for an answer that never came, or that is none, waits for a word of the person.
  private hold(): void {
    if (this.line.items.value.length > 0) this.line.held.value = true;
  }

  private keepWaiting(one: Waiting, problem: Problem | null): void {
    this.line.putBack(one);
    if (problem?.code === "conversation_busy") void this.load();
  }

  private complain(problem: Problem | null): void {
    if (problem !== null) this.say(sentence(problem), problem);
  }

  private say(text: string, problem: Problem | null): void {
    this.problem.value = { text, problem };
    announce(text);
  }
}

