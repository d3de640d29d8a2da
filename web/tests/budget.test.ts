/** What is left of budgets, in words. */
import { expect, test } from "vitest";
import { budgetText, budgetTitle, resetText, share, tightest } from "../src/text/budget";
import type { Budget } from "../src/wire";

const NOW = Date.parse("2026-11-30T12:00:00Z");
const budget = (remaining: number | null, inSeconds: number | null = null, name = "units_3h"): Budget => ({
  name,
  limit: remaining === null ? null : 200,
  remaining,
  resetAt: inSeconds === null ? null : new Date(NOW + inSeconds * 1_000).toISOString(),
});

test("the share is between nothing and everything, whatever comes", () => {
  expect([0, 50, 200, 900, -3].map((left) => share(budget(left)))).toEqual([0, 0.25, 1, 1, 0]);
  expect(share(budget(null))).toBe(1);
});

test("when it is full again is said in the unit of that time, never too early", () => {
  const said = (seconds: number) => resetText(budget(10, seconds), NOW);
  expect(said(20)).toBe("full again in a minute");
  expect(said(61)).toBe("full again in 2 minutes");
  expect(said(5_399)).toBe("full again in 90 minutes");
  expect(said(5_401)).toBe("full again in 2 hours");
  expect(said(90_000)).toBe("full again in 25 hours");
  expect(said(200_000)).toBe("full again in 3 days");
});

test("nothing is said of a budget that is full, or whose time has passed", () => {
  expect(resetText(budget(200), NOW)).toBe("");
  expect(resetText(budget(10, -5), NOW)).toBe("");
  expect(resetText({ ...budget(10), resetAt: "no time" }, NOW)).toBe("");
});

test("what is left is rounded down, and a rest is not called nothing", () => {
  expect(budgetText(budget(199, 60), NOW)).toBe("99 % left, full again in 1 minute");
  expect(budgetText(budget(1, 7_000), NOW)).toBe("under 1 % left, full again in 2 hours");
  expect(budgetText(budget(0), NOW)).toBe("0 % left");
  expect(budgetText(budget(200, 3), NOW)).toBe("100 % left");
});

test("the budget that refuses first is the one of which least is left", () => {
  const all = [budget(100), budget(40, 9, "tokens_minute"), budget(40, 9, "tokens_day"), budget(0, null, "replies_running"), budget(null)];
  expect(tightest(all)?.name).toBe("tokens_minute");
  expect(tightest([budget(0, null, "replies_running")])).toBeNull();
  expect(tightest([])).toBeNull();
});

test("a budget of somebody's own making has a title too", () => {
  expect(budgetTitle("tokens_fortnight")).toBe("Tokens fortnight");
  expect(budgetTitle("turns_minute")).toBe("Messages a minute");
});
