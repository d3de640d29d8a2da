import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Conversation } from "../src/wire";
import { leaving, removeNow, removeSoon, undo } from "../src/state/removal";

vi.stubGlobal("document", { hidden: false, addEventListener: () => {}, removeEventListener: () => {}, documentElement: { dataset: {} } });
const { seen } = await import("../src/state/marks");

const NONE = { running: [], unread: [] };

function one(id: string, activeMessageId: string | null = null): Conversation {
  return { id, title: id, pinned: false, archived: false, createdAt: "", updatedAt: "", activeMessageId };
}

describe("a conversation", () => {
  it("is unread when its answer ended while nobody looked", () => {
    const running = seen(NONE, [one("a", "m"), one("b")], null);
    expect(running).toEqual({ running: ["a"], unread: [] });
    expect(seen(running, [one("a"), one("b")], "b")).toEqual({ running: [], unread: ["a"] });
  });

  it("is not unread when it was on screen, or when only its title changed", () => {
    expect(seen({ running: ["a"], unread: [] }, [one("a")], "a")).toEqual(NONE);
    const before = seen(NONE, [one("a")], null);
    expect(seen(before, [{ ...one("a"), title: "new", updatedAt: "later" }], null)).toEqual(NONE);
  });

  it("is read when it is opened", () => {
    expect(seen({ running: [], unread: ["a", "b"] }, [], "a")).toEqual({ running: [], unread: ["b"] });
  });

  it("changes nothing where nothing changed, and marks are bounded", () => {
    const known = { running: ["a"], unread: ["b"] };
    expect(seen(known, [one("a", "m")], null)).toBe(known);
    const many = Array.from({ length: 500 }, (_, n) => one(`c_${n}`, "m"));
    expect(seen(NONE, many, null).running).toHaveLength(200);
  });
});

describe("a deletion", () => {
  const removed: string[] = [];
  const restored: string[] = [];
  const begin = (id: string, fails = false) =>
    removeSoon({
      id,
      remove: async (isLast) => {
        if (fails) throw new Error("no");
        removed.push(isLast ? `${id} at last` : id);
      },
      restore: () => restored.push(id),
    }, 1_000);

  beforeEach(() => {
    vi.useFakeTimers();
    removed.length = restored.length = 0;
    return () => {
      vi.useRealTimers();
    };
  });

  it("is off the screen at once and in the store when its time is over", async () => {
    begin("a");
    expect(leaving.value.has("a")).toBe(true);
    await vi.advanceTimersByTimeAsync(999);
    expect(removed).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect([removed, leaving.value.size, restored]).toEqual([["a"], 0, []]);
  });

  it("never happens once it was undone, the last one first", async () => {
    begin("a");
    begin("b");
    expect(undo()).toBe(true);
    expect(restored).toEqual(["b"]);
    expect(undo("b")).toBe(false);
    await vi.advanceTimersByTimeAsync(2_000);
    expect([removed, undo()]).toEqual([["a"], false]);
  });

  it("happens at once when the page is left, and once", async () => {
    begin("a");
    begin("a");
    await removeNow(true);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(removed).toEqual(["a at last"]);
  });

  it("that fails brings it back", async () => {
    begin("a", true);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([restored, leaving.value.size]).toEqual([["a"], 0]);
  });
});
