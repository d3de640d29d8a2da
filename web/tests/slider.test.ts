/** A slider's places and what they stand for. */
import { describe, expect, it } from "vitest";
import { placeOf, STEPS, valueAt } from "../src/text/slider";

const PEOPLE = { low: 100, high: 100_000_000, logarithmic: true };
const SHARE = { low: 0, high: 1, logarithmic: false };

describe("a slider", () => {
  it.each([PEOPLE, SHARE])("stands at its ends for its ends", (range) => {
    expect([valueAt(range, 0), valueAt(range, STEPS)]).toEqual([range.low, range.high]);
    expect([placeOf(range, range.low), placeOf(range, range.high)]).toEqual([0, STEPS]);
  });

  it.each([PEOPLE, SHARE])("comes back to each place from what it stands for", (range) => {
    for (let place = 0; place <= STEPS; place++) expect(placeOf(range, valueAt(range, place))).toBe(place);
  });

  it("is at its end for what is beyond it", () => {
    expect([placeOf(PEOPLE, 1), placeOf(PEOPLE, 1e12), placeOf(SHARE, -1)]).toEqual([0, STEPS, 0]);
  });

  it("stands for round figures", () => {
    expect(valueAt(PEOPLE, 33)).toBe(9_500);
    expect(valueAt(SHARE, 7)).toBe(0.07);
  });
});
