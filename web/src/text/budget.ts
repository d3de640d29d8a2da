/** Budgets in words and shares. */
import type { Budget } from "../wire";

const NAMES: Record<string, string> = {
  units_3h: "Use in three hours",
  tokens_minute: "Tokens a minute",
  tokens_day: "Tokens a day",
  prompt_hour: "Tokens to read an hour",
  turns_minute: "Messages a minute",
  replies_running: "Answers at once",
};

export function budgetTitle(name: string): string {
  const plain = name.replaceAll("_", " ");
  return NAMES[name] ?? plain.charAt(0).toUpperCase() + plain.slice(1);
}

/** What is left, from 0 to 1. */
export function share(budget: Budget): number {
  if (budget.limit === null || budget.remaining === null || budget.limit <= 0) return 1;
  return Math.max(0, Math.min(1, budget.remaining / budget.limit));
}

/** The budget of which least is left: the next message is refused by it first. Answers at once are no use of anything. */
export function tightest(budgets: readonly Budget[]): Budget | null {
  const used = budgets.filter((one) => one.limit !== null && one.name !== "replies_running");
  return used.reduce<Budget | null>((least, one) => (least === null || share(one) < share(least) ? one : least), null);
}

/** What is left of a budget and when it is full again, as short as the corner of a page. */
export function budgetText(budget: Budget, now = Date.now()): string {
  const left = share(budget);
  const rest = left > 0 && left < 0.01 ? "under 1 %" : `${Math.floor(left * 100)} %`;
  const reset = resetText(budget, now);
  return `${rest} left${left < 1 && reset !== "" ? `, ${reset}` : ""}`;
}

/** When it is full again, in words; empty for one that is, or that does not fill up by itself. */
export function resetText(budget: Budget, now = Date.now()): string {
  if (budget.resetAt === null) return "";
  const seconds = (Date.parse(budget.resetAt) - now) / 1_000;
  if (!(seconds > 0)) return "";
  if (seconds < 60) return "full again in a minute";
  if (seconds < 5_400) return `full again in ${count(seconds / 60, "minute")}`;
  if (seconds < 129_600) return `full again in ${count(seconds / 3_600, "hour")}`;
  return `full again in ${count(seconds / 86_400, "day")}`;
}

// Rounded up: what is promised is there by then.
function count(amount: number, unit: string): string {
  const whole = Math.ceil(amount);
  return `${whole} ${unit}${whole === 1 ? "" : "s"}`;
}
