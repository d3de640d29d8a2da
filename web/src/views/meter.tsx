/** How much of a budget is left, as a bar: warm when it runs low. */
import type { JSX } from "preact";
import { t } from "../i18n";
import { budgetText, budgetTitle, share } from "../text/budget";
import type { Budget } from "../wire";

const LOW = 0.1; // about one more message of the usual kind

export function Meter({ budget }: { budget: Budget }): JSX.Element {
  return (
    <progress
      class={share(budget) < LOW ? "meter is-low" : "meter"}
      max={1}
      value={share(budget)}
      aria-label={t("{budget}: left", { budget: budgetTitle(budget.name) })}
      aria-valuetext={budgetText(budget)}
    />
  );
}
