/** Budgets in words and shares. */
import { k, number, t } from "../i18n";
import type { Budget } from "../wire";

const NAMES: Record<string, string> = {
  units_3h: k("Use in three hours"),
  tokens_minute: k("Tokens a minute"),
  tokens_day: k("Tokens a day"),
  prompt_hour: k("Tokens to read an hour"),
  turns_minute: k("Messages a minute"),
  replies_running: k("Answers at once"),
};

export function budgetTitle(name: string): string {
  const plain = name.replaceAll("_", " ");
  return t(NAMES[name] ?? plain.charAt(0).toUpperCase() + plain.slice(1));
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
  const rest = left > 0 && left < 0.01 ? t("under 1 % left") : t("{percent} % left", { percent: Math.floor(left * 100) });
  const reset = resetText(budget, now);
  return left < 1 && reset !== "" ? `${rest}, ${reset}` : rest;
}

/** What is left, in numbers. */
export function leftText(budget: Budget): string {
  if (budget.limit === null) return t("no limit");
  return t("{left} of {limit} left", { left: number(budget.remaining ?? 0), limit: number(budget.limit) });
}

/** When it is full again, in words; empty for one that is, or that does not fill up by itself. */
export function resetText(budget: Budget, now = Date.now()): string {
  if (budget.resetAt === null) return "";
  const seconds = (Date.parse(budget.resetAt) - now) / 1_000;
  if (!(seconds > 0)) return "";
  // Rounded up: what is promised is there by then.
  if (seconds < 60) return t("full again in a minute");
  if (seconds < 5_400) return count(Math.ceil(seconds / 60), k("full again in 1 minute"), k("full again in {n} minutes"));
  if (seconds < 129_600) return count(Math.ceil(seconds / 3_600), k("full again in 1 hour"), k("full again in {n} hours"));
  return count(Math.ceil(seconds / 86_400), k("full again in 1 day"), k("full again in {n} days"));
}

function count(n: number, one: string, many: string): string {
  return n === 1 ? t(one) : t(many, { n });
}
