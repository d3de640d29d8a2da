/** What is left of each budget, and when it is full again. */
import type { JSX } from "preact";
import { t } from "../../i18n";
import { account } from "../../state/session";
import { budgetTitle, leftText, resetText } from "../../text/budget";
import { Meter } from "../meter";

export function Usage(): JSX.Element {
  const me = account.value;
  const days = me?.limits?.retentionDays;
  return (
    <section>
      <h3>{t("Usage")}</h3>
      <ul class="budgets">
        {me?.budgets.map((budget) => (
          <li key={budget.name}>
            <span>{budgetTitle(budget.name)}</span>
            <span class="numbers">{leftText(budget)}</span>
            {budget.limit !== null && <Meter budget={budget} />}
            {resetText(budget) !== "" && <span class="hint">{resetText(budget)}</span>}
          </li>
        ))}
      </ul>
      <p class="hint">{t("A message is refused by the first budget that has not enough left for it. Each fills up again by itself, bit by bit.")}</p>
      {typeof days === "number" && <p class="hint">{t("Conversations that nobody touches are deleted after {n} days.", { n: days })}</p>}
    </section>
  );
}
