/** One conversation: what is shown of it and what a person can do in it. Reading and posting have files of their own. */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { call, Refused, sentence, sentenceOf } from "../api";
import type { Version } from "../chat/branch";
import { blank, type Shown } from "../chat/shown";
import { t } from "../i18n";
import { newTurnId } from "../ids";
import type { Conversation, Problem, Rating } from "../wire";
import { announce } from "./announce";
import { UNKEPT } from "./drafts";
import type { LiveReply } from "./live";
import { Posting, type Ask } from "./posting";
import { Reading } from "./reading";
import { refreshAccount } from "./session";
import { Thread } from "./thread";
import { toast } from "./toasts";
import { Turns, type TakeBack } from "./turns";
import { Line, type Waiting } from "./waiting";

/** Where the conversations of the page are kept, and what else of it hears of them. */
export interface House {
  made(chat: Chat, conversation: Conversation): void;
  began(chat: Chat, live: LiveReply): void;
  isRunning(chat: Chat, messageId: string | null): void;
  asked(chat: Chat): void; // a turn of this tab has been taken in
  ended(chat: Chat): void;
  giveBack(chat: Chat, content: string): boolean; // to where messages are written; false: something else is there
}

export class Chat {
  readonly id: Signal<string | null>;
  readonly thread = new Thread();
  readonly line: Line;
  readonly turns: Turns;
  readonly reading: Reading;
  readonly path: ReadonlySignal<Shown[]> = this.thread.path;
  readonly problem = signal<{ text: string; problem: Problem | null } | null>(null);
  readonly running: ReadonlySignal<LiveReply | null>; // on the branch on screen
  readonly waiting: ReadonlySignal<readonly Waiting[]>; // to be sent on the branch on screen
  private readonly posting: Posting;

  /** `temporary`: the server keeps nothing of it, and neither does the browser once it is left. */
  constructor(id: string | null, private readonly house: House, readonly temporary = false) {
    this.id = signal(id);
    this.line = new Line(id);
    this.running = computed(() => this.path.value.find((one) => one.live?.quiet === false)?.live ?? null);
    this.waiting = computed(() => this.line.onBranch(this.leaf()?.id ?? null, (reply) => this.thread.messages.value.has(reply)));
    this.turns = new Turns(this.thread, {
      began: (live) => house.began(this, live),
      named: (live, from, to) => this.wasNamed(live, from, to),
      ended: (reply) => this.hasEnded(reply),
      reload: () => this.reading.newest(),
    });
    // An answer that ended while nobody looked: what waited for it waits for a word of the person.
    this.reading = new Reading(this.id, this.thread, this.turns, () => {
      if (this.line.items.value.length > 0) this.line.held.value = this.running.value === null;
    });
    this.posting = new Posting(this.id, this.thread, temporary, (conversation, first) => this.wasMade(conversation, first));
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
      this.line.hold();
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
    const post = this.posting.ofAnotherAnswer(live, of, model);
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
      this.line.hold();
      giveBack(problem);
    });
  }

  private async run(live: LiveReply, ask: Ask, takeBack: TakeBack): Promise<void> {
    try {
      const post = await this.posting.ofQuestion(live, ask);
      if (post !== null) await this.turns.follow(live, { post, messageId: null }, takeBack);
    } catch (error) {
      if (live.signal.aborted) return;
      live.leave();
      takeBack(error instanceof Refused ? error.problem : null);
      if (!(error instanceof Refused)) this.say(sentenceOf(error), null);
    }
  }

  private wasMade(conversation: Conversation, first: LiveReply): void {
    batch(() => {
      this.id.value = conversation.id;
      this.line.moveTo(conversation.id);
      this.house.made(this, { ...conversation, activeMessageId: first.signal.aborted ? null : first.key });
    });
  }

  // It was stopped before it was sent, or never came in: its question is given back.
  private async forgetUnsent(live: LiveReply, reply: Shown | undefined): Promise<void> {
    live.leave();
    const asked = reply?.parentId == null ? undefined : this.thread.messages.value.get(reply.parentId);
    const isLocal = asked?.viewKey === asked?.id && asked?.id.startsWith("local_") === true;
    if (reply !== undefined) this.thread.drop([live.viewKey, ...(isLocal && asked !== undefined ? [asked.viewKey] : [])]);
    if (isLocal && asked !== undefined) this.giveBack(asked.content, reply?.requested ?? "auto");
    this.line.hold();
    this.house.isRunning(this, null);
    await this.reading.newest();
  }

  // What can't be sent is where it was written; if something else is there by now, it waits beside it.
  private giveBack(content: string, model: string): void {
    if (this.house.giveBack(this, content)) return;
    this.line.putBack({ key: newTurnId(), content, model, after: this.leaf()?.id ?? "" });
  }

  // Another device has asked on this branch: its answer is shown, and what was typed here waits for it.
  private async waitForOther(content: string, model: string, problem: Problem): Promise<void> {
    this.line.add(content, model, problem.activeMessageId ?? this.leaf()?.id ?? "");
    await this.reading.newest();
    if (this.running.value === null) this.line.hold();
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
    if (forked && !this.temporary) void this.reading.siblingsOf(reply);
    if (reply.status === "completed" || reply.status === "stopped") this.sendNext(reply.id);
    else this.line.hold();
  }

  private sendNext(ended: string): void {
    const next = this.line.next(ended);
    if (next !== undefined) this.sendWaiter(next, ended);
  }

  private sendWaiter(next: Waiting, parentId: string | null): void {
    this.line.take(next.key);
    this.begin({ content: next.content, parentId, model: next.model, key: next.key }, (problem) => this.keepWaiting(next, problem));
  }

  private keepWaiting(one: Waiting, problem: Problem | null): void {
    this.line.putBack(one);
    if (problem?.code === "conversation_busy") void this.reading.newest();
  }

  private complain(problem: Problem | null): void {
    if (problem !== null) this.say(sentence(problem), problem);
  }

  private say(text: string, problem: Problem | null): void {
    this.problem.value = { text, problem };
    announce(text);
  }
}

