/** Which branch is on screen, and that no branch forgets its own leaf. */
import { expect, test } from "vitest";
import { pathOf, ROOT, type Choices, type Node } from "../src/chat/tree";

const node = (id: string, parentId: string | null, seq: number): Node => ({ id, parentId, seq });
const ids = (nodes: Node[], choices: Choices = {}, head: string | null = null) =>
  pathOf(nodes, choices, head).map((one) => one.id);

// q1 has two replies, a1 and a2; the first goes on for another turn.
const forked = [node("q1", null, 1), node("a1", "q1", 2), node("q2", "a1", 3), node("a3", "q2", 4), node("a2", "q1", 5)];

test("without a choice the newest branch is shown", () => {
  expect(ids(forked)).toEqual(["q1", "a2"]);
});

test("the head of the conversation wins over the newest branch", () => {
  expect(ids(forked, {}, "a3")).toEqual(["q1", "a1", "q2", "a3"]);
});

test("a branch that is left and chosen again comes back with all its turns", () => {
  expect(ids(forked, { q1: "a2" }, "a3")).toEqual(["q1", "a2"]);
  expect(ids(forked, { q1: "a1" }, "a2")).toEqual(["q1", "a1", "q2", "a3"]);
});

test("a sibling made elsewhere does not move the reader", () => {
  const more = [...forked, node("a4", "q1", 6)];
  expect(ids(more, { q1: "a1" }, "a4")).toEqual(["q1", "a1", "q2", "a3"]);
});

test("an edited first question is a second root", () => {
  const nodes = [...forked, node("q1b", null, 6), node("a1b", "q1b", 7)];
  expect(ids(nodes)).toEqual(["q1b", "a1b"]);
  expect(ids(nodes, { [ROOT]: "q1" }, "a1b")).toEqual(["q1", "a2"]);
});

test("with older pages missing the branch of the head is shown", () => {
  const page = [node("a9", "q9", 20), node("b7", "older", 18), node("q10", "a9", 21), node("a10", "q10", 22)];
  expect(ids(page, {}, "a10")).toEqual(["a9", "q10", "a10"]);
});

test("a cycle in the data ends", () => {
  expect(ids([node("a", "b", 1), node("b", "a", 2)], {}, "a").length).toBeLessThanOrEqual(2);
});

test("no messages give no branch", () => {
  expect(ids([])).toEqual([]);
});
