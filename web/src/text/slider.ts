/** A slider's places, which are whole steps, and the values that they stand for. */

export const STEPS = 100;

export interface Range {
  low: number;
  high: number;
  logarithmic: boolean;
}

/** The step nearest to a value; one that is beyond the slider is at its end. */
export function placeOf({ low, high, logarithmic }: Range, value: number): number {
  const part = logarithmic ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.round(Math.min(1, Math.max(0, part)) * STEPS);
}

/** What a step stands for: a round figure, as nobody knows more of it than that. */
export function valueAt({ low, high, logarithmic }: Range, place: number): number {
  const part = place / STEPS;
  return logarithmic ? rounded(low * (high / low) ** part) : Number((low + (high - low) * part).toFixed(4));
}

// To two digits.
function rounded(value: number): number {
  return Number(value.toPrecision(2));
}
