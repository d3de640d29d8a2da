/**
 * The messages of one conversation that the page knows, and the branch on screen. It changes what is
 * shown and asks nobody: the server owns the messages, and this is a copy merged by message id.
 */
import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";
import { childrenOf, newestBelow, versionOf, wayTo, type Version } from "../chat/branch";
import type { Shown } from "../chat/shown";
import type { Message } from "../wire";

export class Thread {
  readonly messages = signal<ReadonlyMap<string, Shown>>(new Map());
  /** The end of the branch on screen. */
  readonly leaf = signal<string | null>(null);
  readonly path: ReadonlySignal<Shown[]>;
  readonly children = computed(() => childrenOf(this.messages.value));
  private readonly left = new Map<string, string>(); // where a branch was when it was left, by its first message
  private readonly came = new Map<string, string>(); // beside which message one was made, by its view key

  constructor() {
    this.path = computed(() => wayTo(this.messages.value, this.leaf.value));
  }

  last(): Shown | null {
    return this.path.value.at(-1) ?? null;
  }

  versionOf(message: Shown): Version {
    return versionOf(message, this.children.value);
  }

  byView(viewKey: string): Shown | undefined {
    for (const one of this.messages.value.values()) if (one.viewKey === viewKey) return one;
    return undefined;
  }

  nextSeq(): number {
    let highest = 0;
    for (const one of this.messages.value.values()) highest = Math.max(highest, one.seq);
    return highest + 1;
  }

  /** Puts messages into the tree; what was known by their ids is replaced. */
  place(items: Shown[]): void {
    const next = new Map(this.messages.value);
    for (const item of items) next.set(item.id, item);
    this.messages.value = next;
  }

  /** Takes over what the server says. A reply that streams keeps its text: its stream is newer. */
  merge(items: Message[]): void {
    const next = new Map(this.messages.value);
    for (const item of items) {
      const known = next.get(item.id);
      if (known?.live) next.set(item.id, { ...known, parentId: item.parentId, seq: item.seq, ...versionIn(item) });
      else {
        const kept = { live: null, refusal: known?.refusal ?? null, viewKey: known?.viewKey ?? item.id };
        next.set(item.id, { ...item, notices: item.notices ?? [], ...kept });
      }
    }
    this.messages.value = next;
  }

  update(viewKey: string, fields: Partial<Shown>): void {
    const known = this.byView(viewKey);
    if (known !== undefined) this.place([{ ...known, ...fields }]);
  }

  /** Takes messages away that were never stored. If they are on screen, what was there before them is again. */
  drop(viewKeys: readonly string[]): void {
    const gone = (one: Shown) => viewKeys.includes(one.viewKey);
    const next = new Map([...this.messages.value].filter(([, one]) => !gone(one)));
    const first = this.path.value.find(gone);
    batch(() => {
      if (first !== undefined) this.leaf.value = this.before(first, gone);
      this.messages.value = next;
    });
  }

  private before(first: Shown, gone: (one: Shown) => boolean): string | null {
    const { previous } = this.versionOf(first);
    const sibling = previous === null ? undefined : this.messages.value.get(this.came.get(first.viewKey) ?? previous);
    if (sibling === undefined || gone(sibling)) return first.parentId;
    return this.left.get(sibling.id) ?? newestBelow(this.messages.value, sibling.id);
  }

  /** The server's ids replace the page's own, wherever these are named. */
  rename(viewKey: string, replyId: string, userId: string | null, fields: Partial<Shown>): void {
    const reply = this.byView(viewKey);
    if (reply === undefined) return;
    const asked = reply.parentId === null ? undefined : this.messages.value.get(reply.parentId);
    const names = new Map([[reply.id, replyId]]);
    if (asked !== undefined && userId) names.set(asked.id, userId);
    const version = { version: reply.version ?? this.versionOf(reply) };
    const next = new Map(this.messages.value);
    next.delete(reply.id);
    if (asked !== undefined && userId) {
      next.delete(asked.id);
      next.set(userId, { ...asked, id: userId, version: asked.version ?? this.versionOf(asked) });
    }
    next.set(replyId, { ...reply, ...version, ...fields, id: replyId, parentId: userId || reply.parentId });
    batch(() => {
      this.renameAll(next, names);
      this.messages.value = next;
    });
  }

  /** Adds what was just sent, and shows it. */
  grow(items: Shown[]): void {
    const first = items[0]!;
    const beside = this.leave(first.parentId);
    if (beside !== undefined) this.came.set(first.viewKey, beside.id);
    batch(() => {
      this.place(items);
      this.leaf.value = items.at(-1)!.id;
    });
  }

  /** Shows the branch of a message: where it was left, or as far down as it is known. */
  show(id: string): void {
    this.leave(this.messages.value.get(id)?.parentId ?? null);
    const kept = this.left.get(id);
    this.leaf.value = kept !== undefined && this.messages.value.has(kept) ? kept : newestBelow(this.messages.value, id);
  }

  /** The branch as the server knows it ends here: shown unless the page knows of more below it. */
  showEnd(id: string | null): void {
    if (!this.path.value.some((one) => one.id === id)) this.leaf.value = id;
  }

  // Remembers where the branch on screen is left, by the message of it that has this parent.
  private leave(parentId: string | null): Shown | undefined {
    const leaving = this.path.value.find((one) => one.parentId === parentId);
    if (leaving !== undefined && this.leaf.value !== null) this.left.set(leaving.id, this.leaf.value);
    return leaving;
  }

  // What was sent below it meanwhile, or the ways to siblings, may still name it by its old id.
  private renameAll(next: Map<string, Shown>, names: ReadonlyMap<string, string>): void {
    const named = (id: string | null) => (id === null ? null : (names.get(id) ?? id));
    for (const [id, one] of next) {
      const parentId = named(one.parentId);
      if (parentId !== one.parentId) next.set(id, { ...one, parentId });
    }
    for (const [from, to] of [...this.left]) {
      this.left.delete(from);
      this.left.set(names.get(from) ?? from, names.get(to) ?? to);
    }
    for (const [made, beside] of this.came) this.came.set(made, names.get(beside) ?? beside);
    this.leaf.value = named(this.leaf.value);
  }
}

function versionIn(item: Message): { version?: Version } {
  return item.version === undefined ? {} : { version: item.version };
}
