import { describe, expect, it } from "vitest";
import { before, offsetsOf, renewed, rowAt, rowsOf, windowOf, type Heights } from "../src/list/rows";
import type { Conversation } from "../src/wire";

const HEIGHTS: Heights = { heading: 30, entry: 40, found: 60 };
const MIDNIGHT = Date.parse("2026-05-20T00:00:00Z");

function one(id: string, updatedAt = "2026-05-20T10:00:00Z", more: Partial<Conversation> = {}): Conversation {
  return { id, title: id, pinned: false, archived: false, createdAt: updatedAt, updatedAt, activeMessageId: null, ...more };
}

describe("the rows of the list", () => {
  it("begin with a heading for each group, pinned first", () => {
    const items = [
      one("b"), one("a", "2026-01-01T00:00:00Z", { pinned: true }), one("c", "2026-05-19T23:59:59Z"),
      one("d", "2026-05-14T00:00:00Z"), one("e", "2026-04-25T00:00:00Z"), one("f", "2025-01-01T00:00:00Z"),
    ];
    const rows = rowsOf(items, HEIGHTS, MIDNIGHT).map((row) => (row.kind === "heading" ? row.group : `${row.key} ${row.place}`));
    expect(rows).toEqual([
      "Pinned", "a 1", "Today", "b 2", "Yesterday", "c 3", "Last seven days", "d 4", "Last thirty days", "e 5", "Older", "f 6",
    ]);
  });

  it("are higher where a search has something to show", () => {
    const rows = rowsOf([one("a", undefined, { snippet: { before: "", match: "x", after: "" } }), one("b")], HEIGHTS, MIDNIGHT);
    expect(offsetsOf(rows)).toEqual([0, 30, 90, 130]);
  });

  it("of 15,000 conversations only fill the window", () => {
    const items = Array.from({ length: 15_000 }, (_, n) => one(`c_${n}`));
    const offsets = offsetsOf(rowsOf(items, HEIGHTS, MIDNIGHT));
    expect(offsets.at(-1)).toBe(30 + 15_000 * 40);
    for (const top of [0, 1_000, 299_999, offsets.at(-1)! - 800]) {
      const { first, last } = windowOf(offsets, top, 800, 5);
      expect(last - first).toBeLessThanOrEqual(33);
      expect(offsets[first]).toBeLessThanOrEqual(top);
      expect(offsets[last]).toBeGreaterThanOrEqual(top + 800);
    }
  });

  it("are found by their height as by looking at each", () => {
    const offsets = [0, 30, 90, 130, 131, 200];
    for (let at = 0; at < 230; at++) {
      const each = offsets.slice(0, -1).findLastIndex((offset) => offset <= at);
      expect(rowAt(offsets, at)).toBe(each);
    }
    expect(windowOf([0], 0, 100, 5)).toEqual({ first: 0, last: 0 });
  });
});

describe("a first page that is fetched again", () => {
  const [a, b, c, d] = ["4", "3", "2", "1"].map((day) => one(`c_${day}`, `2026-05-0${day}T00:00:00Z`)) as [Conversation, Conversation, Conversation, Conversation];

  it("drops what it should have and has not, and keeps what lies behind it", () => {
    expect(renewed([a, b, c, d], [a, c], false)).toEqual([a, c, d]);
  });

  it("replaces all when it is the whole list", () => {
    expect(renewed([a, b, c], [b], true)).toEqual([b]);
    expect(renewed([a], [], true)).toEqual([]);
  });

  it("knows the order of the store: pinned, newest, then by id", () => {
    const pinned = one("p", "2020-01-01T00:00:00Z", { pinned: true });
    expect(before(pinned, a)).toBe(true);
    expect(before(a, b)).toBe(true);
    expect(before(one("x2"), one("x1"))).toBe(true);
    expect(before(a, a)).toBe(false);
  });
});
