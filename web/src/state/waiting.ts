/**
 * Messages that were typed while an answer was on its way. Each has its key from the start, so that it is one
 * turn whichever tab sends it, and waits for the end of the answer that it was typed below.
 */
import { signal, type Signal } from "@preact/signals";
import { newTurnId } from "../ids";
import { PREFIX, recallFrom, rememberIn } from "./memory";
import { account } from "./session";

export const MOST_WAITING = 10;

export interface Waiting {
  key: string;
  content: string;
  model: string;
  after: string; // the reply that it waits for; of a message before it in the line, its key
}

/** Those of one conversation, oldest first. `held`: nothing is sent until the person says so. */
export class Line {
  readonly items: Signal<readonly Waiting[]>;
  readonly held = signal(false);

  constructor(private place: string | null) {
    this.items = signal(this.stored());
  }

  get isFull(): boolean {
    return this.items.value.length >= MOST_WAITING;
  }

  /** Behind those that wait below the same reply already. */
  add(content: string, model: string, after: string): void {
    this.put([...this.items.value, { key: newTurnId(), content, model, after: this.below(after).at(-1)?.key ?? after }]);
  }

  /** What waits below a reply: first what waits for it, then what waits for the answer to that. */
  below(reply: string): readonly Waiting[] {
    let last = reply;
    return this.items.value.filter((one) => {
      if (one.after !== last) return false;
      last = one.key;
      return true;
    });
  }

  /** What is sent when this reply has ended: the first that waits for it, unless a word of the person is waited for. */
  next(reply: string): Waiting | undefined {
    return this.held.value ? undefined : this.below(reply)[0];
  }

  /** What is to be sent below the branch that ends with this reply, or below no reply that is known. */
  onBranch(leaf: string | null, isKnown: (reply: string) => boolean): readonly Waiting[] {
    const all = this.items.value;
    const lost = all.filter(({ after }) => !all.some(({ key }) => key === after) && !isKnown(after));
    return [...lost.flatMap((one) => [one, ...this.below(one.key)]), ...(leaf === null ? [] : this.below(leaf))];
  }

  /** What waits for an answer that never came, or that is none, waits for a word of the person. */
  hold(): void {
    if (this.items.value.length > 0) this.held.value = true;
  }

  remove(key: string): void {
    const at = this.items.value.findIndex((one) => one.key === key);
    const gone = this.items.value[at];
    if (gone === undefined) return;
    const rest = this.items.value.filter((one) => one.key !== key);
    this.put(rest.map((one) => (one.after === gone.key ? { ...one, after: gone.after } : one)));
    if (rest.length === 0) this.held.value = false;
  }

  /** Takes one out, to send it: those behind it wait for the answer to it, which has its key. */
  take(key: string): void {
    this.put(this.items.value.filter((one) => one.key !== key));
  }

  /** It could not be sent: it is the first again, and waits until the person says so. */
  putBack(one: Waiting): void {
    this.put([one, ...this.items.value]);
    this.held.value = true;
  }

  /** The server's name of a reply takes the place of the page's own. */
  rename(from: string, to: string): void {
    if (this.items.value.some((one) => one.after === from)) {
      this.put(this.items.value.map((one) => (one.after === from ? { ...one, after: to } : one)));
    }
  }

  /** The conversation has got its id: from now on the browser keeps the line. */
  moveTo(place: string): void {
    this.place = place;
    this.put(this.items.value);
  }

  /** Another tab has sent or removed one. */
  readAgain(): void {
    if (this.place !== null) this.items.value = this.stored();
  }

  private stored(): readonly Waiting[] {
    return this.place === null ? [] : recallFrom<Waiting[]>(storeKey(), this.place, []).slice(0, MOST_WAITING);
  }

  private put(items: readonly Waiting[]): void {
    this.items.value = items;
    if (this.place !== null) rememberIn(storeKey(), this.place, items.length === 0 ? null : items);
  }
}

/** Whether a change in the browser's storage is one of lines. */
export function isOfLines(storageKey: string | null): boolean {
  return storageKey === PREFIX + storeKey();
}

// Under the drafts: it is text of the person, and goes with them when they sign out.
function storeKey(): string {
  return `drafts.waiting.${account.peek()?.id ?? ""}`;
}
