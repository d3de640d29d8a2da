/** The planner: what is asked of a fleet, moved by hand, and what the gateway computes for it. */
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { k, t } from "../../i18n";
import { ask, forget, give, isAsking, leave, plan, refusal, say, wish } from "../../state/planner";
import type { PlanShown } from "../../wire-admin";
import { lazy } from "../lazy";
import { amount, quantity } from "./figures";
import { Slider } from "./slider";
import { Trials } from "./trials";

const PlanCurves = lazy(() => import("./plan-curves").then((part) => part.PlanCurves));

const SLIDERS: Readonly<Record<string, string>> = {
  users: k("People who use it on a day"),
  turns_per_user: k("Messages of each in a day"),
  answer_tokens: k("Tokens of an answer"),
  hit_share: k("Of earlier turns, found in a cache"),
  small_share: k("Answered by the small model"),
  free_share: k("Messages of free plans"),
  spare_share: k("Spare, beyond what the work needs"),
};
const POOLS: Readonly<Record<string, string>> = { large: k("Large model"), small: k("Small model") };
const CHOICES: Readonly<Record<string, string>> = { model: k("Model"), accelerator: k("Accelerator"), precision: k("Precision") };
const WIDTHS = [1, 2, 4, 8];
const BINDS: Readonly<Record<string, string>> = {
  compute: k("Computing binds: most of the busy time reads prompts. More cache hits help."),
  bandwidth: k("Bandwidth binds: most of the busy time writes answers at the memory's speed. Fewer bits or a smaller model help."),
  overhead: k("Fixed cost binds: a step costs more than what it reads. Fewer accelerators for each replica help."),
  kv: k("Cache memory binds: running answers fill it. Shorter contexts help."),
  slots: k("Slots bind: running answers take all of them."),
};
const OF_POOLS: Readonly<Record<string, string>> = {
  share: k("Share of messages"),
  replicas: k("Replicas"),
  accelerators: k("Accelerators"),
  batch: k("Answers at once, each replica"),
  step_s: k("A step"),
  gap_with_chunk_s: k("Between tokens while a prompt is read"),
  largest_chunk_tokens: k("Most tokens of a prompt in a step"),
  first_token_s: k("To the first token, without a line"),
  turns_per_s: k("Messages a second at the peak"),
  full_turns_per_s: k("Messages a second at the most"),
  price_per_hour: k("An accelerator for an hour"),
};
const GROUPS: readonly { title: string; figures: Readonly<Record<string, string>> }[] = [
  {
    title: k("When something is lost"),
    figures: {
      busy_accelerators: k("Accelerators busy at the peak"),
      busy_cold_accelerators: k("Busy reading if all caches are lost"),
      paid_alone_at: k("Times the peak before paid messages alone fill it"),
    },
  },
  {
    title: k("Memory and doors"),
    figures: {
      idle_bytes: k("Cache of conversations between two messages"),
      host_bytes_per_server: k("Memory that a server needs for it at least"),
      stored_bytes_kept: k("Stored, with copies"),
      gateways: k("Gateways"),
      cells: k("Cells"),
      regions: k("Regions"),
    },
  },
  {
    title: k("Money"),
    figures: {
      accelerator_cost_per_day: k("Accelerators, a day"),
      scaled_cost_per_day: k("The same, scaled with the day"),
      cost_per_million_tokens: k("A million tokens, prompts and answers"),
      cost_per_million_answer_tokens: k("A million tokens of answers"),
      api_cost_per_1000: k("1,000 messages at a hosted model"),
      crossover_users: k("A fleet of your own costs less from so many people"),
    },
  },
];

export function PlannerView(): JSX.Element {
  useEffect(() => {
    void ask(0);
    return leave;
  }, []);
  const shown = plan.value;
  return (
    <>
      <p class="hint">{t("How large a fleet should be, reckoned by the same planner as the command. Prices and timings are assumptions until you give your own.")}</p>
      {refusal.value !== null && <p class="form-error" role="alert" lang="en">{refusal.value}</p>}
      {shown === null && refusal.value === null && <p class="list-note" aria-busy="true">{t("Loading")}</p>}
      {shown !== null && (
        <>
          <Wishes shown={shown} />
          <div class="stack" aria-busy={isAsking.value} role="group" aria-label={t("The plan")}>
            <Tiles shown={shown} />
            <Pools shown={shown} />
            <PlanCurves shown={shown} />
            <div class="panels">{GROUPS.map((group) => <Facts key={group.title} {...group} shown={shown} />)}</div>
          </div>
          <Trials />
        </>
      )}
    </>
  );
}

function Wishes({ shown }: { shown: PlanShown }): JSX.Element {
  return (
    <section class="panel">
      <h2>{t("What is asked")}</h2>
      <div class="sliders">
        {shown.sliders.map((one) => {
          const value = wish.value.values[one.name] ?? one.value;
          return (
            <Slider key={one.name} id={`plan-${one.name}`} name={t(SLIDERS[one.name] ?? one.name)} range={one} value={value}
              text={quantity(value, one.unit)} give={(moved) => give(one.name, moved)} />
          );
        })}
      </div>
      {Object.keys(POOLS).map((pool) => <Hardware key={pool} pool={pool} shown={shown} />)}
      <div class="row is-start"><button type="button" class="button" onClick={forget}>{t("Begin anew")}</button></div>
    </section>
  );
}

function Hardware({ pool, shown }: { pool: string; shown: PlanShown }): JSX.Element {
  const width = `${pool}.accelerators_per_replica`;
  const asked = wish.value.values[width] ?? shown.figures[width]?.value;
  return (
    <fieldset class="hardware">
      <legend>{t(POOLS[pool]!)}</legend>
      {Object.keys(CHOICES).map((bare) => {
        const name = `${pool}.${bare}`;
        const all = shown.choices[name] ?? [];
        return (
          <label key={name} class="choice"><span>{t(CHOICES[bare]!)}</span>
            <select value={wish.value.words[name] ?? all[0]} onChange={(event) => say(name, event.currentTarget.value)}>
              {all.map((one) => <option key={one} value={one}>{one}</option>)}
            </select>
          </label>
        );
      })}
      <label class="choice"><span>{t("Accelerators each")}</span>
        <select value={asked ?? ""} onChange={(event) => give(width, Number(event.currentTarget.value))}>
          {asked == null && <option value="">–</option>}
          {WIDTHS.map((one) => <option key={one} value={one}>{one}</option>)}
        </select>
      </label>
    </fieldset>
  );
}

function Tiles({ shown }: { shown: PlanShown }): JSX.Element {
  const of = (name: string) => quantity(shown.figures[name]?.value ?? null, shown.figures[name]?.unit ?? "");
  const tiles: [string, string][] = [
    [t("Accelerators"), of("accelerators")],
    [t("Replicas"), of("replicas")],
    [t("1,000 messages"), of("cost_per_1000")],
    [t("A million tokens"), of("cost_per_million_tokens")],
    [t("Messages a second at the peak"), of("peak_turns_per_s")],
    [t("Answers under way at the peak"), of("streams")],
    [t("Target for 1,000 messages"), of("cost_target")],
    [t("Accelerators by the data sheet alone"), amount(shown.beside.accelerators)],
  ];
  return <dl class="tiles">{tiles.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

function Pools({ shown }: { shown: PlanShown }): JSX.Element {
  const pools = Object.keys(shown.binds);
  return (
    <section class="panel">
      <h2>{t("What binds")}</h2>
      <ul class="facts">
        {pools.map((pool) => <li key={pool}><strong>{t(POOLS[pool]!)}:</strong> {t(BINDS[shown.binds[pool]!] ?? shown.binds[pool]!)}</li>)}
      </ul>
      <div class="table-scroll" tabindex={0} role="region" aria-label={t("The pools")}>
        <table class="figures">
          <thead><tr><th scope="col">{t("Figure")}</th>{pools.map((pool) => <th key={pool} scope="col">{t(POOLS[pool]!)}</th>)}</tr></thead>
          <tbody>
            {Object.entries(OF_POOLS).map(([bare, name]) => (
              <tr key={bare}>
                <th scope="row">{t(name)}</th>
                {pools.map((pool) => {
                  const figure = shown.figures[`${pool}.${bare}`];
                  return <td key={pool} title={figure?.formula ?? figure?.by}>{quantity(figure?.value ?? null, figure?.unit ?? "")}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <details class="sources"><summary>{t("Where the timings are from")}</summary><ul class="facts" lang="en">{shown.notes.map((note) => <li key={note}>{note}</li>)}</ul></details>
    </section>
  );
}

function Facts({ title, figures, shown }: { title: string; figures: Readonly<Record<string, string>>; shown: PlanShown }): JSX.Element {
  return (
    <section class="panel">
      <h2>{t(title)}</h2>
      <dl class="plan-facts">
        {Object.entries(figures).map(([name, said]) => (
          <div key={name} title={shown.figures[name]?.formula ?? undefined}>
            <dt>{t(said)}</dt><dd>{quantity(shown.figures[name]?.value ?? null, shown.figures[name]?.unit ?? "")}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
