/** Blocks, healing and pacing of an answer that is still growing. */
import { expect, test } from "vitest";
import { GrowingBlocks, healTail, splitBlocks } from "../src/text/blocks";
import { bytesOver, fitsTheBox } from "../src/text/limit";
import { advance, arrive, cutAt, restMs, START } from "../src/text/pace";

const answer = "# Title\n\nA paragraph\nof two lines.\n\n```py\nx = 1\n\ny = 2\n```\n\n1. one\n\n   more\n\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\nx\n\ny\n$$\n\nend";

test("paragraphs, code with blank lines, loose lists and formulas are one block each", () => {
  expect(splitBlocks(answer).blocks).toEqual([
    "# Title",
    "A paragraph\nof two lines.",
    "```py\nx = 1\n\ny = 2\n```",
    "1. one\n\n   more\n\n2. two",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "$$\nx\n\ny\n$$",
    "end",
  ]);
});

test("all blocks but the last stay the same while the text grows", () => {
  const whole = splitBlocks(answer).blocks;
  for (let length = 0; length < answer.length; length++) {
    const { blocks } = splitBlocks(answer.slice(0, length));
    const closed = blocks.slice(0, -1);
    // A list may still grow when only its first items have come.
    closed.forEach((block, i) => expect(whole[i]?.startsWith(block)).toBe(true));
  }
});

const long = `${answer}\n\n[a]: https://example.org/a\n\n- x\n\n\n  - y\n\n1. z\n\nsame\n\nsame\n\n[b]: https://example.org/b\nmore\n\n    code\n\n    code\n\nsame`;

test("a text that grows letter by letter has the same blocks as the whole of it", () => {
  const growing = new GrowingBlocks();
  for (let length = 0; length <= long.length; length++) expect(growing.split(long.slice(0, length))).toEqual(splitBlocks(long.slice(0, length)));
});

test("a text that grows in leaps, or is dropped for another one, has the blocks of what it is now", () => {
  for (const leap of [2, 7, 31, 120]) {
    const growing = new GrowingBlocks();
    for (let length = 0; length <= long.length; length += leap) expect(growing.split(long.slice(0, length))).toEqual(splitBlocks(long.slice(0, length)));
    expect(growing.split("Other.\n\nText.")).toEqual(splitBlocks("Other.\n\nText."));
    expect(growing.split(long)).toEqual(splitBlocks(long));
  }
});

test("a fence inside a list keeps its blank lines", () => {
  const text = "- item\n\n  ```js\n  a\n\n  b\n  ```\n\nafter";
  expect(splitBlocks(text).blocks).toEqual(["- item\n\n  ```js\n  a\n\n  b\n  ```", "after"]);
});

test("link definitions are found for all blocks", () => {
  expect(splitBlocks("See [docs].\n\n[docs]: https://example.org/").definitions).toBe("[docs]: https://example.org/");
});

test("open bold and code marks are closed while streaming", () => {
  expect(healTail("this is **bo")).toBe("this is **bo**");
  expect(healTail("this is **")).toBe("this is ");
  expect(healTail("run `pip ins")).toBe("run `pip ins`");
  expect(healTail("a **b** `c`")).toBe("a **b** `c`");
  expect(healTail("```js\na ** b")).toBe("```js\na ** b");
});

test("what has arrived is on screen within a second", () => {
  let pace = arrive(START, 400, 0);
  pace = advance(pace, 450);
  expect(pace.shown).toBeCloseTo(200);
  pace = arrive(pace, 700, 450);
  expect(advance(pace, 1_350).shown).toBe(700);
});

test("text that comes bit by bit is shown almost as soon as it comes, and sentences word by word", () => {
  let [bits, sentences] = [START, START];
  for (let now = 0; now <= 2_000; now += 20) bits = arrive(bits, now / 2, now);
  for (let now = 0; now <= 6_000; now += 600) sentences = arrive(sentences, now / 2, now);
  expect(bits.total - bits.shown).toBeLessThan(100); // a fifth of a second of it
  expect(sentences.total - advance(sentences, 6_600).shown).toBeGreaterThan(50); // no pause before the next one
});

test("a short rest is not stretched over the whole second", () => {
  expect(advance(arrive(START, 3, 0), 100).shown).toBe(3);
});

test("text that was dropped starts again from nothing", () => {
  const pace = advance(arrive(START, 400, 0), 900);
  expect(arrive(pace, 10, 900).shown).toBe(0);
});

test("the cut is at a word and never inside a character", () => {
  expect("one two three".slice(0, cutAt("one two three", 9))).toBe("one two");
  const astronauts = "👩".repeat(40);
  for (let shown = 1; shown < astronauts.length; shown++) expect(cutAt(astronauts, shown) % 2).toBe(0);
});

test("what was quick to draw needs a short rest, and no rest looks like a fault", () => {
  expect(restMs(17)).toBe(12);
  expect(restMs(34)).toBe(170);
  expect(restMs(5_000)).toBe(250);
});

test("a text is too long by its bytes, and nothing is counted that can't be", () => {
  expect(bytesOver("é".repeat(500), 1_000)).toBeNull();
  expect(bytesOver("é".repeat(501), 1_000)).toBe(1_002);
  expect(bytesOver("👩".repeat(250), 1_000)).toBeNull();
  expect(bytesOver("x".repeat(333), 1_000)).toBeNull();
});

test("twice the limit is still put into the box", () => {
  expect(fitsTheBox(2_000, 1_000)).toBe(true);
  expect(fitsTheBox(2_001, 1_000)).toBe(false);
});
