/** A branch in stretches: nothing moves from one to another, and an answer stays with its question. */
import { expect, test } from "vitest";
import { stretchesOf } from "../src/chat/stretches";

const talk = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, at) => ({ seq: first + at, role: (first + at) % 2 === 1 ? "user" : "assistant" }));
const keysOf = (path: ReturnType<typeof talk>) => new Map(stretchesOf(path).flatMap((one) => one.messages.map((message) => [message.seq, one.key])));

test("a short conversation is one stretch", () => {
  expect(stretchesOf(talk(1, 8)).map((one) => one.messages.length)).toEqual([8]);
  expect(stretchesOf([])).toEqual([]);
});

test("all messages are there once, in order", () => {
  const path = talk(1, 500);
  expect(stretchesOf(path).flatMap((one) => one.messages)).toEqual(path);
  expect(new Set(stretchesOf(path).map((one) => one.key)).size).toBe(stretchesOf(path).length);
});

test("older messages that come in above leave the others where they are", () => {
  const before = keysOf(talk(451, 500));
  const after = keysOf(talk(401, 500));
  for (const [seq, key] of before) expect(after.get(seq)).toBe(key);
});

test("an answer is in the stretch of its question, however many versions were made meanwhile", () => {
  const path = [{ seq: 31, role: "user" }, { seq: 70, role: "assistant" }, { seq: 71, role: "user" }];
  expect(stretchesOf(path).map((one) => one.messages.map(({ seq }) => seq))).toEqual([[31, 70], [71]]);
});

test("numbers that do not grow along a branch make no stretch twice", () => {
  const path = [{ seq: 90, role: "user" }, { seq: 2, role: "assistant" }, { seq: 3, role: "user" }, { seq: 140, role: "user" }];
  expect(stretchesOf(path).map((one) => one.key)).toEqual([2, 4]);
});

test("a stretch in which nothing changed is the same one", () => {
  const before = stretchesOf(talk(1, 80));
  const after = stretchesOf([...before.flatMap((one) => one.messages), ...talk(81, 82)], before);
  expect(after.map((one, at) => one === before[at])).toEqual([true, true, false]);
});
