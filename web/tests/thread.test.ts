/** The branch on screen through sends, names, switches and messages that are taken back. */
import { expect, test } from "vitest";
import { blank, type Shown } from "../src/chat/shown";
import { Thread } from "../src/state/thread";
import type { Message } from "../src/wire";

const message = (id: string, parentId: string | null, seq: number, more: Partial<Message> = {}): Message =>
  ({ ...blank(id, parentId, seq, "user"), status: "completed", version: { number: 1, count: 1, previous: null, following: null }, ...more });

function loaded(...items: Message[]): Thread {
  const thread = new Thread();
  thread.merge(items);
  thread.showEnd(items.at(-1)?.id ?? null);
  return thread;
}

const shown = (thread: Thread) => thread.path.value.map((one) => one.id);

function ask(thread: Thread, key: string, parentId: string | null): void {
  const question: Shown = { ...blank(`local_${key}`, parentId, thread.nextSeq(), "user"), viewKey: `local_${key}` };
  thread.grow([question, { ...blank(key, question.id, thread.nextSeq() + 1, "assistant"), viewKey: key }]);
}

test("the server's ids take the place of the page's own, and what is on screen stays", () => {
  const thread = loaded(message("q1", null, 1), message("a1", "q1", 2));
  ask(thread, "k", "a1");
  const keys = thread.path.value.map((one) => one.viewKey);
  thread.rename("k", "a2", null, {});
  thread.rename("k", "a2", "q2", { status: "running" });
  expect(shown(thread)).toEqual(["q1", "a1", "q2", "a2"]);
  expect(thread.path.value.map((one) => one.viewKey)).toEqual(keys);
  expect(thread.messages.value.size).toBe(4);
});

test("what was asked below a reply before it had its name stays below it", () => {
  const thread = loaded(message("q1", null, 1), message("a1", "q1", 2));
  ask(thread, "k", "a1");
  ask(thread, "l", "k");
  thread.rename("k", "a2", "q2", {});
  expect(shown(thread)).toEqual(["q1", "a1", "q2", "a2", "local_l", "l"]);
});

test("each branch is shown again where it was left", () => {
  const thread = loaded(message("q1", null, 1), message("a1", "q1", 2));
  ask(thread, "k", "a1");
  thread.rename("k", "a2", "q2", {});
  ask(thread, "e", null); // the first question, edited
  expect(shown(thread)).toEqual(["local_e", "e"]);
  expect(thread.versionOf(thread.path.value[0]!)).toMatchObject({ number: 2, count: 2, previous: "q1" });
  thread.show("q1");
  expect(shown(thread)).toEqual(["q1", "a1", "q2", "a2"]);
  thread.rename("e", "ae", "qe", {});
  thread.show("qe");
  expect(shown(thread)).toEqual(["qe", "ae"]);
});

test("a further reply that is refused leaves the one before it on screen, with its turns", () => {
  const thread = loaded(message("q1", null, 1), message("a1", "q1", 2), message("q2", "a1", 3), message("a2", "q2", 4));
  thread.grow([{ ...blank("k", "q1", 5, "assistant"), viewKey: "k" }]);
  expect(shown(thread)).toEqual(["q1", "k"]);
  thread.drop(["k"]);
  expect(shown(thread)).toEqual(["q1", "a1", "q2", "a2"]);
});

test("a message that is refused leaves what was before it", () => {
  const thread = loaded(message("q1", null, 1), message("a1", "q1", 2));
  ask(thread, "k", "a1");
  thread.drop(["k", "local_k"]);
  expect(shown(thread)).toEqual(["q1", "a1"]);
  const empty = new Thread();
  ask(empty, "k", null);
  empty.drop(["k", "local_k"]);
  expect(shown(empty)).toEqual([]);
});

test("older messages come in above and change nothing below", () => {
  const thread = loaded(message("q9", "a8", 17), message("a9", "q9", 18));
  thread.merge([message("q8", "a7", 15), message("a8", "q8", 16)]);
  expect(shown(thread)).toEqual(["q8", "a8", "q9", "a9"]);
});

test("an end that the branch on screen goes beyond is not gone back to", () => {
  const thread = loaded(message("q1", null, 1), message("a1", "q1", 2));
  ask(thread, "k", "a1");
  thread.showEnd("a1");
  expect(shown(thread)).toEqual(["q1", "a1", "local_k", "k"]);
  thread.merge([message("q1b", null, 5)]);
  thread.showEnd("q1b");
  expect(shown(thread)).toEqual(["q1b"]);
});
