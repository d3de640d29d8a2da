/** A plan tried: its fleet under so many times its peak, with the service's policies on or off. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { k, number, t } from "../../i18n";
import { wish } from "../../state/planner";
import { cancel, fault, play, progress, trials, type Conditions, type Trial } from "../../state/trial";
import { lazy } from "../lazy";
import { amount, duration, percent, seconds } from "./figures";
import { Slider } from "./slider";

const TrialCurves = lazy(() => import("./trial-curves").then((part) => part.TrialCurves));

const LOADS = { low: 0.5, high: 10, logarithmic: true };
const POLICIES: Readonly<Record<Exclude<keyof Conditions, "load">, string>> = {
  paidFirst: k("Paid messages go first"),
  ladder: k("The ladder may act on free ones"),
  door: k("Who would wait too long is told so at once"),
};
const NAMES = Object.keys(POLICIES) as (keyof typeof POLICIES)[];
const GROUPS: Readonly<Record<string, string>> = { plus: k("Paid"), free: k("Free") };
const conditions = signal<Conditions>({ load: 4, ladder: true, paidFirst: true, door: true });

export function Trials(): JSX.Element {
  useEffect(() => cancel, []); // whoever leaves the page wants no more of it
  const { load } = conditions.value;
  const part = progress.value;
  const isPlaying = part !== null;
  const newest = trials.value[0];
  return (
    <section class="panel">
      <h2>{t("A busy hour on it")} <span class="hint">{t("played with the service's own decisions, in virtual time")}</span></h2>
      <Slider id="trial-load" name={t("Times its peak")} range={LOADS} value={load} text={t("× {n}", { n: number(load, { maximumFractionDigits: 2 }) })}
        give={(moved) => (conditions.value = { ...conditions.value, load: moved })} />
      <div class="checks">
        {NAMES.map((name) => (
          <label key={name} class="check">
            <input type="checkbox" checked={conditions.value[name]} disabled={isPlaying}
              onChange={(event) => (conditions.value = { ...conditions.value, [name]: event.currentTarget.checked })} />
            <span>{t(POLICIES[name])}</span>
          </label>
        ))}
      </div>
      <div class="row is-start">
        {isPlaying
          ? <button type="button" class="button" onClick={cancel}>{t("Cancel")}</button>
          : <button type="button" class="button is-main" onClick={() => void play(wish.value, conditions.value)}>{t("Play it")}</button>}
        {isPlaying && <progress class="meter trial-progress" max={1} value={part} aria-label={t("Played so far")} aria-valuetext={percent(part)} />}
      </div>
      {fault.value !== null && <p class="form-error" role="alert">{fault.value}</p>}
      <div role="status" class="sr">{!isPlaying && newest !== undefined ? t("Played: trial {n}.", { n: newest.number }) : ""}</div>
      {newest !== undefined && <Told trial={newest} />}
    </section>
  );
}

function Told({ trial }: { trial: Trial }): JSX.Element {
  return (
    <>
      <p class="hint">
        {t("Trial {n}: {time} on {accelerators} accelerators, {share} of their time in use. The first quarter is not counted.", {
          n: trial.number, time: duration(trial.told.seconds), accelerators: trial.told.accelerators, share: percent(trial.told.inUse),
        })}
      </p>
      <TrialCurves key={trial.number} trial={trial} />
      <div class="table-scroll" tabindex={0} role="region" aria-label={t("Trials")}>
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">{t("Trial")}</th><th scope="col">{t("Who")}</th><th scope="col">{t("Messages")}</th><th scope="col">{t("Gave up waiting")}</th>
              <th scope="col">{t("Refused")}</th><th scope="col">{t("By the small model")}</th><th scope="col">{t("Shortened")}</th>
              <th scope="col">{t("Wait, 50 %")}</th><th scope="col">{t("Wait, 95 %")}</th>
            </tr>
          </thead>
          <tbody>{trials.value.flatMap((one) => rows(one))}</tbody>
        </table>
      </div>
    </>
  );
}

function rows(trial: Trial): JSX.Element[] {
  return trial.told.groups.map((group, at) => (
    <tr key={`${trial.number}.${group.name}`}>
      {at === 0 && (
        <th scope="rowgroup" rowSpan={trial.told.groups.length}>
          {trial.number}<span class="hint">{described(trial.conditions)}</span>
        </th>
      )}
      <td>{t(GROUPS[group.name] ?? group.name)}</td><td>{amount(group.messages)}</td><td>{percent(group.timedOut)}</td><td>{percent(group.refused)}</td>
      <td>{percent(group.small)}</td><td>{percent(group.short)}</td><td>{seconds(group.waitP50Seconds)}</td><td>{seconds(group.waitP95Seconds)}</td>
    </tr>
  ));
}

function described(of: Conditions): string {
  const off = NAMES.filter((name) => !of[name]).map((name) => t(POLICIES[name]));
  const load = t("× {n}", { n: number(of.load, { maximumFractionDigits: 2 }) });
  return off.length === 0 ? t("{load}, all on", { load }) : t("{load}, without: {policies}", { load, policies: off.join("; ") });
}
