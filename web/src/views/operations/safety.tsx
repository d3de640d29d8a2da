/** What the checks have flagged, in numbers, and what deletions have reached. Nobody's words are here. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { k, moment, t } from "../../i18n";
import { fleet } from "../../state/fleet";
import type { Deletion, FleetNow } from "../../wire-admin";
import { attempt } from "../account/attempt";
import { amount, UNKNOWN } from "./figures";

const STAGES: Readonly<Record<FleetNow["flagged"][number]["stage"], string>> = {
  input: k("in messages"),
  output: k("in answers"),
};

interface Deletions {
  items: Deletion[];
  nextCursor: string | null;
  overdue: number;
}

export function SafetyView(): JSX.Element {
  return (
    <>
      <Flagged flagged={fleet.value?.flagged ?? []} />
      <DeletionsView />
    </>
  );
}

function Flagged({ flagged }: { flagged: FleetNow["flagged"] }): JSX.Element {
  return (
    <section class="panel">
      <h2>{t("Flagged by the checks")}</h2>
      {flagged.length === 0
        ? <p class="hint">{t("Nothing was flagged since this gateway started.")}</p>
        : (
          <table class="figures">
            <thead><tr><th scope="col">{t("Category")}</th><th scope="col">{t("Where")}</th><th scope="col">{t("How often")}</th></tr></thead>
            <tbody>
              {flagged.map((one) => (
                <tr key={`${one.stage}.${one.category}`}><th scope="row">{one.category}</th><td>{t(STAGES[one.stage])}</td><td>{amount(one.count)}</td></tr>
              ))}
            </tbody>
          </table>
        )}
      <p class="hint">{t("Counted since this gateway started. Where workers are processes of their own, what they flag in answers is in their metrics.")}</p>
    </section>
  );
}

function DeletionsView(): JSX.Element {
  const [found, setFound] = useState<Deletions | null>(null);
  useEffect(() => void attempt(async () => setFound(await call<Deletions>("GET", "/v1/admin/deletions?limit=50"))), []);
  return (
    <section class="panel">
      <h2>{t("Deletions")}</h2>
      {found !== null && (
        <p class={found.overdue > 0 ? "form-error" : "hint"}>
          {found.overdue > 0 ? t("{n} are overdue: a copy was not reached within an hour.", { n: found.overdue }) : t("None is overdue.")}
        </p>
      )}
      {found?.items.length === 0 && <p class="hint">{t("Nothing was deleted yet. Each order to delete will be here with the copies that it reached.")}</p>}
      {found !== null && found.items.length > 0 && (
        <div class="table-scroll" tabindex={0} role="region" aria-label={t("Deletions")}>
          <table class="figures">
            <thead><tr><th scope="col">{t("Ordered")}</th><th scope="col">{t("What")}</th><th scope="col">{t("Whole")}</th><th scope="col">{t("Reached")}</th></tr></thead>
            <tbody>
              {found.items.map((one) => (
                <tr key={`${one.requestedAt}.${one.target ?? one.owner}`}>
                  <th scope="row">{moment(one.requestedAt)}</th><td>{one.kind}</td><td>{one.doneAt === null ? UNKNOWN : moment(one.doneAt)}</td>
                  <td>{Object.entries(one.reached).map(([name, reach]) => `${name}: ${reach.how}`).join(", ") || UNKNOWN}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
