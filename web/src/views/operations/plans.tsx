/** What each plan may use, as it is configured. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { number, t } from "../../i18n";
import { budgetTitle } from "../../text/budget";
import type { Plan } from "../../wire-admin";
import { attempt } from "../account/attempt";
import { amount, duration } from "./figures";

export function PlansView(): JSX.Element {
  const [plans, setPlans] = useState<Plan[] | null>(null);
  useEffect(() => void attempt(async () => setPlans((await call<{ items: Plan[] }>("GET", "/v1/admin/plans")).items)), []);
  return (
    <>
      <p class="hint">{t("Plans are written in the settings, so that every gateway has the same. Here is what is in force.")}</p>
      <div class="panels">{plans?.map((plan) => <PlanView key={plan.name} plan={plan} />)}</div>
    </>
  );
}

function PlanView({ plan }: { plan: Plan }): JSX.Element {
  const facts: [string, string][] = [
    [t("Lane"), plan.lane],
    [t("Models"), plan.models.join(", ") || t("all")],
    [t("Context"), t("{n} tokens", { n: plan.windowTokens })],
    [t("Longest answer"), t("{n} tokens", { n: plan.answerTokens })],
    [t("Answers at once"), amount(plan.repliesRunning)],
    [t("Open streams"), amount(plan.openStreams)],
    [t("Longest wait"), duration(plan.waitSeconds)],
    [t("An answer to nobody ends after"), plan.abandonSeconds === null ? t("never") : duration(plan.abandonSeconds)],
    [t("Conversations are kept"), plan.retentionDays === null ? t("for ever") : t("{n} days", { n: plan.retentionDays })],
    [t("The ladder may act on it"), plan.ladder ? t("yes") : t("no")],
  ];
  return (
    <section class="panel">
      <h2>{plan.name}</h2>
      <table class="figures">
        <thead><tr><th scope="col">{t("Budget")}</th><th scope="col">{t("Limit")}</th><th scope="col">{t("Full again in")}</th></tr></thead>
        <tbody>
          {plan.budgets.map((budget) => (
            <tr key={budget.name}><th scope="row">{budgetTitle(budget.name)}</th><td>{number(budget.limit)} {budget.unit.replaceAll("_", " ")}</td><td>{duration(budget.refillSeconds)}</td></tr>
          ))}
        </tbody>
      </table>
      <dl class="plan-facts">{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      <p class="hint">{mostText(plan)}</p>
    </section>
  );
}

function mostText(plan: Plan): string {
  const units = plan.mostPerDay["units"];
  return units === null || units === undefined
    ? t("No budget bounds what one account can use in a day.")
    : t("One account can use at most {n} units in a day.", { n: units });
}
