/** Messages that wait for an answer: in order, each bound to the reply that it was typed below. */
import { beforeEach, expect, test, vi } from "vitest";
import { Line, MOST_WAITING } from "../src/state/waiting";

beforeEach(() => {
  const kept = new Map<string, string>();
  vi.stubGlobal("localStorage", {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => kept.set(name, value),
    removeItem: (name: string) => kept.delete(name),
  });
});

const contents = (line: Line) => line.items.value.map((one) => one.content);

test("they are taken in the order in which they were typed, each behind the one before it", () => {
  const line = new Line("c_1");
  line.add("two", "auto", "m_1");
  line.add("three", "auto", "m_1");
  const [two, three] = line.items.value;
  expect([two?.after, three?.after]).toEqual(["m_1", two?.key]);
  line.take(two!.key);
  expect(contents(line)).toEqual(["three"]);
  expect(line.below(two!.key)).toEqual([three]);
});

test("those of one branch do not wait for the answers of another one", () => {
  const line = new Line("c_1");
  line.add("here", "auto", "m_1");
  line.add("there", "auto", "m_9");
  line.add("here too", "auto", "m_1");
  expect(line.below("m_1").map((one) => one.content)).toEqual(["here", "here too"]);
  expect(line.below("m_9").map((one) => one.content)).toEqual(["there"]);
});

test("they outlive a reload, each with its key", () => {
  const line = new Line("c_1");
  line.add("two", "large", "m_1");
  expect(new Line("c_1").items.value).toEqual(line.items.value);
  expect(new Line("c_2").items.value).toEqual([]);
  line.take(line.items.value[0]!.key);
  expect(new Line("c_1").items.value).toEqual([]);
});

test("a conversation without an id keeps them in memory until it has one", () => {
  const line = new Line(null);
  line.add("two", "auto", "k");
  expect(new Line("c_1").items.value).toEqual([]);
  line.moveTo("c_1");
  expect(contents(new Line("c_1"))).toEqual(["two"]);
});

test("one that is removed leaves the one behind it in its place", () => {
  const line = new Line("c_1");
  line.add("two", "auto", "m_1");
  line.add("three", "auto", "m_1");
  line.remove(line.items.value[0]!.key);
  expect(line.items.value).toMatchObject([{ content: "three", after: "m_1" }]);
  line.remove("unknown");
  expect(contents(line)).toEqual(["three"]);
});

test("the reply's name at the server takes the place of the page's", () => {
  const line = new Line("c_1");
  line.add("two", "auto", "key");
  line.rename("key", "m_1");
  expect(line.items.value[0]?.after).toBe("m_1");
});

test("one that was refused is the first again and waits for a word", () => {
  const line = new Line("c_1");
  line.add("two", "auto", "m_1");
  line.add("three", "auto", "m_1");
  const [two] = line.items.value;
  line.take(two!.key);
  line.putBack(two!);
  expect(contents(line)).toEqual(["two", "three"]);
  expect(line.held.value).toBe(true);
  line.items.value.forEach((one) => line.remove(one.key));
  expect(line.held.value).toBe(false);
});

test("what another tab has sent is gone here too", () => {
  const [mine, theirs] = [new Line("c_1"), new Line("c_1")];
  mine.add("two", "auto", "m_1");
  theirs.readAgain();
  theirs.take(theirs.items.value[0]!.key);
  mine.readAgain();
  expect(contents(mine)).toEqual([]);
});

test("the line has an end", () => {
  const line = new Line("c_1");
  for (let i = 0; i < MOST_WAITING; i++) line.add(String(i), "auto", "m_1");
  expect(line.isFull).toBe(true);
});
