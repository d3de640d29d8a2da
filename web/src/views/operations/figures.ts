/** Figures as people read them. What is not known is a dash, never a 0. */
import { number, t } from "../../i18n";

export const UNKNOWN = "–";

export function percent(share: number | null): string {
  return share === null ? UNKNOWN : t("{n} %", { n: number(share * 100, { maximumFractionDigits: share < 0.1 ? 1 : 0 }) });
}

export function seconds(value: number | null): string {
  if (value === null) return UNKNOWN;
  if (value < 1) return t("{n} ms", { n: Math.round(value * 1_000) });
  if (value < 120) return t("{n} s", { n: number(value, { maximumFractionDigits: 1 }) });
  return duration(value);
}

/** A span of time in its largest unit. */
export function duration(value: number): string {
  if (value < 120) return t("{n} s", { n: Math.round(value) });
  if (value < 7_200) return t("{n} min", { n: Math.round(value / 60) });
  if (value < 172_800) return t("{n} h", { n: number(value / 3_600, { maximumFractionDigits: 1 }) });
  return t("{n} days", { n: number(value / 86_400, { maximumFractionDigits: 1 }) });
}

export function amount(value: number | null | undefined, digits = 0): string {
  return value === null || value === undefined ? UNKNOWN : number(value, { maximumFractionDigits: digits });
}

const BYTES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** A figure of a plan in its unit; where the name says the unit, the number alone. */
export function quantity(value: number | null, unit: string): string {
  if (value === null) return UNKNOWN;
  if (unit === "share") return percent(value);
  if (unit === "s") return seconds(value);
  if (unit === "B") return bytes(value);
  if (unit.startsWith("$")) return money(value);
  return amount(value, value < 10 ? 1 : 0);
}

/** Dollars: cents only where they matter. */
export function money(value: number): string {
  const digits = value < 100 ? 2 : 0;
  return t("${n}", { n: number(value, { minimumFractionDigits: digits, maximumFractionDigits: digits }) });
}

function bytes(value: number): string {
  const power = Math.min(BYTES.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${number(value / 1_000 ** power, { maximumFractionDigits: 1 })} ${BYTES[power]}`;
}
