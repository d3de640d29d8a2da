/** The fleet, live: what runs where, how long people wait, and what is given up because of it. */
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "../../api";
import { k, moment, t } from "../../i18n";
import { fleet, points, steps } from "../../state/fleet";
import { loadModels, models, progressOf, titleOf } from "../../state/models";
import type { FleetNow, ReplicaSight } from "../../wire-admin";
import { attempt } from "../account/attempt";
import { lazy } from "../lazy";
import { amount, duration, money, percent, quantity, seconds } from "./figures";

const Charts = lazy(() => import("./charts").then((part) => part.Charts));

const STATES: Readonly<Record<ReplicaSight["state"], string>> = {
  ready: k("ready"),
  held: k("set aside"),
  draining: k("leaving"),
  resting: k("resting: it was slow or failed"),
  starting: k("starting"),
  refused: k("refused"),
  lost: k("lost"),
};
const RUNGS: readonly string[] = [
  k("Paid turns go first"),
  k("Free turns go to the small model"),
  k("Free answers are short"),
  k("Free turns that cannot start at once are refused"),
];
const LANES: Readonly<Record<string, string>> = { plus: k("Paid"), free: k("Free"), batch: k("Batches") };
const SHOWN_STEPS = 8;

export function FleetView(): JSX.Element {
  const now = fleet.value;
  if (now === null) return <p class="list-note" aria-busy="true">{t("Waiting for the first look at the fleet …")}</p>;
  return (
    <>
      <Tiles now={now} />
      <Charts points={points.value} />
      <Replicas sights={now.replicas} />
      <div class="panels">
        <Lanes now={now} />
        <Ladder now={now} />
        <Latency now={now} />
        <Costs costs={now.costs} />
        <Models />
      </div>
    </>
  );
}

function Tiles({ now }: { now: FleetNow }): JSX.Element {
  const sum = (pick: (lane: FleetNow["lanes"][number]) => number) => now.lanes.reduce((all, lane) => all + pick(lane), 0);
  const rates = now.replicas.map((one) => one.tokensPerSecond).filter((rate) => rate !== null);
  const ready = now.replicas.filter((one) => one.state === "ready").length;
  const tiles: [string, string][] = [
    [t("Answers running"), amount(sum((lane) => lane.running))],
    [t("Waiting"), amount(sum((lane) => lane.queued))],
    [t("Tokens a second"), amount(rates.length === 0 ? null : rates.reduce((all, rate) => all + rate, 0))],
    [t("First text, 95 %"), seconds(now.firstText.p95)],
    [t("Between tokens, 95 %"), seconds(now.betweenTokens.p95)],
    [t("Open streams here"), amount(now.openStreams)],
    [t("Replicas ready"), t("{n} of {all}", { n: ready, all: now.replicas.length })],
    [t("Rung of the ladder"), amount(now.ladder.rung)],
  ];
  return (
    <dl class="tiles">
      {tiles.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

function Replicas({ sights }: { sights: readonly ReplicaSight[] }): JSX.Element {
  return (
    <section class="panel">
      <h2>{t("Replicas")}</h2>
      {sights.length === 0 && <p class="hint">{t("No replica is known. One of the settings appears when it is listed, another when it registers.")}</p>}
      {sights.length > 0 && (
        <div class="table-scroll" tabindex={0} role="region" aria-label={t("Replicas")}>
          <table class="figures">
            <thead>
              <tr>
                <th scope="col">{t("Replica")}</th><th scope="col">{t("State")}</th><th scope="col">{t("Batch")}</th>
                <th scope="col">{t("To read")}</th><th scope="col">{t("Cache used")}</th><th scope="col">{t("Cache hits")}</th>
                <th scope="col">{t("Tokens/s")}</th><th scope="col">{t("Gap")}</th><th scope="col"><span class="sr">{t("Actions")}</span></th>
              </tr>
            </thead>
            <tbody>{sights.map((one) => <ReplicaRow key={one.name} sight={one} />)}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function ReplicaRow({ sight }: { sight: ReplicaSight }): JSX.Element {
  const isHeld = sight.state === "held";
  const act = () => attempt(() => call("POST", isHeld ? "/v1/admin/undrain" : "/v1/admin/drain", { replica: sight.name }));
  return (
    <tr>
      <th scope="row"><span dir="ltr">{sight.name}</span><span class="hint" dir="ltr">{sight.model} · {sight.engine}</span></th>
      <td><span class={`state is-${sight.state}`}>{t(STATES[sight.state])}</span>{sight.message !== null && <span class="hint">{sight.message}</span>}</td>
      <td><Share label={t("Batch of {name}", { name: sight.name })} share={sight.running / sight.slots} text={t("{n} of {all}", { n: sight.running, all: sight.slots })} /></td>
      <td>{amount(sight.owedTokens)}</td>
      <td>{sight.cacheUsed === null ? percent(null) : <Share label={t("Cache of {name}", { name: sight.name })} share={sight.cacheUsed} text={percent(sight.cacheUsed)} />}</td>
      <td>{percent(sight.cacheHits)}</td>
      <td>{amount(sight.tokensPerSecond, 1)}</td>
      <td>{seconds(sight.gapSeconds)}</td>
      <td>
        <button type="button" class="button is-small" aria-label={isHeld ? t("Undrain {name}", { name: sight.name }) : t("Drain {name}", { name: sight.name })}
          onClick={() => void act()}>{isHeld ? t("Undrain") : t("Drain")}</button>
      </td>
    </tr>
  );
}

function Share({ label, share, text }: { label: string; share: number; text: string }): JSX.Element {
  return (
    <span class="share">
      <span>{text}</span>
      <progress class={share > 0.9 ? "meter is-low" : "meter"} max={1} value={Math.min(1, share)} aria-label={label} aria-valuetext={text} />
    </span>
  );
}

function Lanes({ now }: { now: FleetNow }): JSX.Element {
  return (
    <section class="panel">
      <h2>{t("Lanes")}</h2>
      <table class="figures">
        <thead>
          <tr><th scope="col">{t("Lane")}</th><th scope="col">{t("Running")}</th><th scope="col">{t("Waiting")}</th><th scope="col">{t("Wait of a newcomer")}</th></tr>
        </thead>
        <tbody>
          {now.lanes.map((lane) => (
            <tr key={lane.name}>
              <th scope="row">{t(LANES[lane.name] ?? lane.name)}</th><td>{amount(lane.running)}</td><td>{amount(lane.queued)}</td>
              <td>{seconds(lane.waitSeconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Ladder({ now }: { now: FleetNow }): JSX.Element {
  const { rung, heldSeconds, load } = now.ladder;
  const history = steps.value.slice(-SHOWN_STEPS).reverse();
  return (
    <section class="panel">
      <h2>{t("Ladder")}</h2>
      <ol class="ladder">
        {RUNGS.map((name, at) => (
          <li key={name} class={at <= rung ? "is-held" : ""} aria-current={at === rung ? "true" : undefined}>
            <span>{t(name)}</span>
            <span class="hint">{at === 0 ? t("always") : t("from a load of {n}", { n: percent([0.85, 0.92, 0.97][at - 1]!) })}</span>
          </li>
        ))}
      </ol>
      <p class="hint">
        {t("Rung {rung} for {time}.", { rung, time: duration(heldSeconds) })}{" "}
        {load === null ? t("The load is not known.") : t("The load without any rung: {n}.", { n: percent(load[0] ?? null) })}
      </p>
      <ul class="history" aria-label={t("History of the ladder")}>
        {history.map((step) => <li key={step.at}><time dateTime={step.at}>{moment(step.at)}</time> {t("rung {rung}", { rung: step.rung })}</li>)}
      </ul>
    </section>
  );
}

function Latency({ now }: { now: FleetNow }): JSX.Element {
  const rows = [
    { name: t("To the first text"), of: now.firstText },
    { name: t("Between tokens"), of: now.betweenTokens },
  ];
  return (
    <section class="panel">
      <h2>{t("Latency of five minutes")}</h2>
      <table class="figures">
        <thead>
          <tr><th scope="col">{t("At this gateway")}</th><th scope="col">50 %</th><th scope="col">95 %</th><th scope="col">99 %</th><th scope="col">{t("Measured")}</th></tr>
        </thead>
        <tbody>
          {rows.map(({ name, of }) => (
            <tr key={name}><th scope="row">{name}</th><td>{seconds(of.p50)}</td><td>{seconds(of.p95)}</td><td>{seconds(of.p99)}</td><td>{amount(of.count)}</td></tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Costs({ costs }: { costs: FleetNow["costs"] }): JSX.Element {
  if (costs === null) {
    return (
      <section class="panel">
        <h2>{t("Cost")}</h2>
        <p class="hint">{t("No prices are set. Write what an accelerator costs in an hour, and what the team costs in a year, into the table [costs] of the settings.")}</p>
      </section>
    );
  }
  const { perHour, perMillion, targetPerMillion } = costs;
  const isAbove = perMillion !== null && targetPerMillion !== null && perMillion > targetPerMillion;
  return (
    <section class="panel">
      <h2>{t("Cost")}</h2>
      <dl class="plan-facts">
        <div><dt>{t("An hour of the fleet and its team")}</dt><dd>{money(perHour)}</dd></div>
        <div><dt>{t("A million tokens of answers, in the last half hour")}</dt><dd>{quantity(perMillion, "$")}</dd></div>
        <div><dt>{t("Target for a million tokens")}</dt><dd>{quantity(targetPerMillion, "$")}</dd></div>
      </dl>
      {isAbove && <p class="form-error">{t("Above the target: a fleet that is not busy costs as much as one that is.")}</p>}
    </section>
  );
}

function Models(): JSX.Element {
  useEffect(() => void loadModels(), []);
  return (
    <section class="panel">
      <h2>{t("Models")}</h2>
      <ul class="facts">
        {models.value.filter((one) => one.id !== "auto").map((one) => (
          <li key={one.id} class="setting">
            <span dir="ltr">{titleOf(one.id)}</span>
            <span class="hint">{stateText(one.status?.state ?? "ready", progressOf(one))}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const MODEL_STATES: Readonly<Record<string, string>> = {
  ready: k("ready"), fetching: k("downloading"), starting: k("starting"), absent: k("not there"), failed: k("failed"),
};

function stateText(state: string, share: number | null): string {
  const name = t(MODEL_STATES[state] ?? state);
  return share === null || state !== "fetching" ? name : `${name}, ${percent(share)}`;
}
