/** Which messages lie on a branch, and which of its siblings a message is. */
import { expect, test } from "vitest";
import { childrenOf, newestBelow, versionOf, wayTo, type Node, type Version } from "../src/chat/branch";

const node = (id: string, parentId: string | null, seq: number, version?: Version): Node =>
  version === undefined ? { id, parentId, seq } : { id, parentId, seq, version };
const tree = (...nodes: Node[]) => new Map(nodes.map((one) => [one.id, one]));
const told = (number: number, count: number, previous: string | null = null, following: string | null = null): Version => ({ number, count, previous, following });
const version = (nodes: ReadonlyMap<string, Node>, id: string) => versionOf(nodes.get(id)!, childrenOf(nodes));

// q1 has two replies, a1 and a2; the first goes on for another turn.
const forked = tree(node("q1", null, 1), node("a1", "q1", 2), node("q2", "a1", 3), node("a3", "q2", 4), node("a2", "q1", 5));

test("a branch is the way from its end to the top of what is known", () => {
  expect(wayTo(forked, "a3").map((one) => one.id)).toEqual(["q1", "a1", "q2", "a3"]);
  expect(wayTo(tree(node("q10", "a9", 21), node("a10", "q10", 22)), "a10").map((one) => one.id)).toEqual(["q10", "a10"]);
});

test("no end, or one that is not known, is no branch", () => {
  expect(wayTo(forked, null)).toEqual([]);
  expect(wayTo(forked, "gone")).toEqual([]);
});

test("a cycle in the data ends", () => {
  const cycle = tree(node("a", "b", 1), node("b", "a", 2));
  expect(wayTo(cycle, "a").length).toBe(2);
  expect(["a", "b"]).toContain(newestBelow(cycle, "a"));
});

test("below a message the newest end of what is known is taken", () => {
  expect(newestBelow(forked, "a1")).toBe("a3");
  expect(newestBelow(forked, "q1")).toBe("a2");
});

test("a message says of its siblings what the server told", () => {
  const one = tree(node("a2", "q1", 2, told(2, 3, "a1", "a3")));
  expect(version(one, "a2")).toEqual(told(2, 3, "a1", "a3"));
});

test("a reply that was asked for just now stands behind those that the server knows", () => {
  const two = tree(node("a1", "q1", 2, told(1, 1)), node("new", "q1", 3));
  expect(version(two, "a1")).toEqual(told(1, 2, null, "new"));
  expect(version(two, "new")).toEqual(told(2, 2, "a1", null));
});

test("a new one beside siblings of which only one is loaded leads back to that one", () => {
  const two = tree(node("a1", "q1", 2, told(1, 3, null, "a2")), node("new", "q1", 9));
  expect(version(two, "new")).toEqual(told(4, 4, "a1", null));
  expect(version(two, "a1")).toEqual(told(1, 4, null, "a2"));
});

test("without a server all siblings count by their order", () => {
  const local = tree(node("x", null, 1), node("y", null, 2), node("z", null, 3));
  expect(version(local, "y")).toEqual(told(2, 3, "x", "z"));
});

test("what the server told later of a sibling leads there too", () => {
  const two = tree(node("a1", "q1", 2, told(1, 1)), node("a2", "q1", 3, told(2, 2, "a1")));
  expect(version(two, "a1")).toEqual(told(1, 2, null, "a2"));
});
