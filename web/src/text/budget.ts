/** Budgets in words and shares. */
import type { Budget } from "../wire";

const NAMES: Record<string, string> = {
  tokens_per_day: "Tokens today",
  tokens_per_month: "Tokens this month",
  replies_running: "Answers at once",
  requests_per_minute: "Messages a minute",
  streams_open: "Open streams",
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

export function budgetText(budget: Budget): string {
  const left = share(budget);
  const rest = left > 0 && left < 0.01 ? "under 1 %" : `${Math.floor(left * 100)} %`;
  const reset = resetText(budget);
  return `${rest} left${left < 1 && reset !== "" ? `, ${reset}` : ""}`;
}

export function resetText(budget: Budget): string {
  if (budget.resetAt === null) return "";
  const at = new Date(budget.resetAt);
  const soon = at.getTime() - Date.now() < 24 * 3_600_000;
  const day: Intl.DateTimeFormatOptions = soon ? {} : { weekday: "short" };
  return `resets ${at.toLocaleString(undefined, { ...day, hour: "2-digit", minute: "2-digit" })}`;
}
