/** Turn ids and waits. */
import { expect, test } from "vitest";
import { newTurnId } from "../src/ids";
import { waitMs } from "../src/stream/backoff";

test("a turn id has its form and sorts by time", () => {
  expect(newTurnId()).toMatch(/^m_[0-9A-HJKMNP-TV-Z]{26}$/);
  expect(newTurnId(1_700_000_000_000) < newTurnId(1_700_000_000_001)).toBe(true);
});

test("the first three tries are quick and no wait is over ten seconds", () => {
  expect(waitMs(3, 0.999)).toBeLessThanOrEqual(1_200);
  for (let failures = 1; failures < 50; failures++) expect(waitMs(failures, 0.999)).toBeLessThanOrEqual(10_000);
});

test("a wait that the server asks for is kept", () => {
  expect(waitMs(1, 0.999, 5_000)).toBeGreaterThan(4_000);
});
