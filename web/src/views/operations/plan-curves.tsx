/** How a plan changes with one of its inputs, the others as they are. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { k, language, number, t } from "../../i18n";
import type { PlanCurve, PlanShown } from "../../wire-admin";
import { amount, percent, quantity } from "./figures";
import { PlotView, WHOLE, type Curve } from "./plot";

const TITLES: Readonly<Record<string, string>> = {
  users: k("1,000 messages, by people on a day"),
  hit_share: k("Accelerators, by what caches hold"),
  small_share: k("Accelerators, by what the small model answers"),
};
const NAMES: Readonly<Record<string, string>> = {
  cost_per_1000: k("own fleet"),
  api_cost_per_1000: k("hosted model"),
  accelerators: k("in all"),
  busy_accelerators: k("busy"),
};
const COLOURS: readonly Curve["colour"][] = ["--accent", "--warm"];

export function PlanCurves({ shown }: { shown: PlanShown }): JSX.Element {
  return <div class="charts">{shown.curves.map((curve) => <CurveView key={`${curve.over}${language.value}`} curve={curve} shown={shown} />)}</div>;
}

function CurveView({ curve, shown }: { curve: PlanCurve; shown: PlanShown }): JSX.Element {
  const data = useMemo(() => columns(curve), [curve]);
  const slider = shown.sliders.find((one) => one.name === curve.over);
  const unit = shown.figures[curve.figures[0]!]?.unit ?? "";
  const isMoney = unit.startsWith("$");
  const along = (value: number) => (slider?.unit === "share" ? percent(value) : number(value, { notation: "compact" }));
  const text = (value: number | null) => (isMoney ? quantity(value, unit) : amount(value));
  const ends = [curve.points[0], curve.points[curve.points.length - 1]];
  const said = ends.map((point) => `${along(point?.[0] ?? 0)}: ${text(point?.[1] ?? null)}`).join("; ");
  return (
    <PlotView
      plot={{
        title: t(TITLES[curve.over] ?? curve.over), said, text, least: 1, steps: WHOLE, isLogarithmic: isMoney,
        across: { text: along, isLogarithmic: slider?.logarithmic === true },
        curves: curve.figures.map((name, at) => ({ name: t(NAMES[name] ?? name), colour: COLOURS[at % COLOURS.length]! })),
      }}
      data={data}
    />
  );
}

function columns(curve: PlanCurve): uPlot.AlignedData {
  const column = (at: number) => curve.points.map((point) => point[at] ?? null);
  return [column(0).map((value) => value ?? 0), ...curve.figures.map((_, at) => column(at + 1))];
}
