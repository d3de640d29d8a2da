/**
 * What is read of one conversation: its newest messages, older ones above them, and its other branches. It asks
 * the server and puts the answers into the thread; it never sends anything that was written.
 */
import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";
import { call, Refused, sentenceOf } from "../api";
import type { Shown } from "../chat/shown";
import type { Conversation, MessagePage } from "../wire";
import { put } from "./conversations";
import type { Thread } from "./thread";
import { toast } from "./toasts";
import type { Turns } from "./turns";

const PAGE = 50;

export class Reading {
  readonly state = signal<"empty" | "loading" | "ready" | "failed" | "gone">("empty");
  /** The message before which older ones can be read; null: the branch begins here. */
  readonly nextBefore: ReadonlySignal<string | null>;

  /** `opened` is called when the messages are there for the first time. */
  constructor(
    private readonly id: ReadonlySignal<string | null>,
    private readonly thread: Thread,
    private readonly turns: Turns,
    private readonly opened: () => void,
  ) {
    this.nextBefore = computed(() => {
      const first = thread.path.value[0];
      return first === undefined || first.parentId === null ? null : first.id;
    });
    if (id.peek() === null) this.state.value = "ready";
  }

  /**
   * Fetches the newest messages of the branch on screen (at first: of the one that was shown last, on any
   * device), and follows a reply that is under way. What is shown stays meanwhile, and so does the branch.
   */
  async newest(): Promise<void> {
    const id = this.id.value;
    if (id === null || this.state.value === "loading") return;
    const first = this.state.value !== "ready";
    // The answer to a post that is on its way would be taken for another message.
    const isBusy = () => !first && this.turns.live.some((live) => live.nameless);
    if (isBusy()) return;
    if (first) this.state.value = "loading";
    const through = (first ? null : this.thread.last()?.id) ?? "head";
    try {
      const [conversation, page] = await Promise.all([
        call<Conversation>("GET", `/v1/conversations/${id}`),
        this.pageOf(through),
      ]);
      if (isBusy()) return;
      batch(() => {
        const isWhereItWas = first || (this.thread.last()?.id ?? "head") === through;
        put(conversation);
        this.take(page);
        if (isWhereItWas) this.thread.showEnd(page.items.at(-1)?.id ?? null);
        this.state.value = "ready";
        if (first) this.opened();
      });
    } catch (error) {
      const isGone = error instanceof Refused && error.problem.status === 404;
      if (first || isGone) this.state.value = isGone ? "gone" : "failed";
    }
  }

  async older(): Promise<void> {
    const before = this.nextBefore.value;
    if (before === null) return;
    try {
      this.thread.merge((await this.pageOf("head", before)).items);
    } catch (error) {
      toast(sentenceOf(error), "bad");
    }
  }

  /** Which siblings there are is the server's to say: another device may have made some. */
  async siblingsOf(reply: Shown): Promise<void> {
    await this.pageOf(reply.id).then((page) => this.take(page), () => {});
  }

  /** Shows a sibling, with the turns that followed it: where that branch was last, on any device. */
  async show(siblingId: string): Promise<void> {
    if (this.thread.messages.value.has(siblingId)) this.thread.show(siblingId);
    const sibling = this.thread.messages.value.get(siblingId);
    if (this.id.value === null || (sibling !== undefined && sibling.version === undefined)) return; // nobody else has it
    const left = this.thread.leaf.value;
    try {
      const [page] = await Promise.all([
        this.pageOf(siblingId),
        call("PUT", `/v1/conversations/${this.id.value}/head`, { messageId: siblingId }),
      ]);
      batch(() => {
        this.thread.merge(page.items);
        if (this.thread.leaf.value === left) this.thread.show(siblingId);
        if (this.thread.path.value.some((one) => one.id === siblingId)) this.thread.showEnd(page.items.at(-1)?.id ?? siblingId);
        this.turns.attach(page.items);
      });
    } catch (error) {
      if (sibling === undefined || error instanceof Refused) toast(sentenceOf(error), "bad");
    }
  }

  /** It is read again when it is looked at. */
  forget(): void {
    this.state.value = "empty";
  }

  private take(page: MessagePage): void {
    batch(() => {
      this.thread.merge(page.items);
      this.turns.attach(page.items);
    });
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
}
