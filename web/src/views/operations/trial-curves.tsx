/** How a trial went over its time. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { language, t } from "../../i18n";
import type { Trial } from "../../state/trial";
import { amount, duration } from "./figures";
import { PlotView, WHOLE, type Curve } from "./plot";

interface Chart {
  title: string;
  least: number;
  curves: readonly (Curve & { at: number })[];
}

export function TrialCurves({ trial }: { trial: Trial }): JSX.Element {
  const charts: readonly Chart[] = [
    { title: t("Messages a second"), least: 1, curves: [{ name: t("begun"), colour: "--accent", at: 2 }, { name: t("asked"), colour: "--warm", at: 1 }] },
    { title: t("In the line"), least: 4, curves: [{ name: t("waiting"), colour: "--warm", at: 3 }] },
    { title: t("Rung of the ladder"), least: 3, curves: [{ name: t("rung"), colour: "--accent", at: 4 }] },
  ];
  return <div class="charts">{charts.map((chart) => <ChartView key={`${chart.title}${language.value}`} chart={chart} trial={trial} />)}</div>;
}

function ChartView({ chart, trial }: { chart: Chart; trial: Trial }): JSX.Element {
  const { points } = trial.told;
  const data = useMemo<uPlot.AlignedData>(
    () => [points.map((point) => point[0]), ...chart.curves.map((curve) => points.map((point) => point[curve.at]!))], [points],
  );
  const last = points[points.length - 1];
  const said = chart.curves.map((curve) => `${curve.name} ${amount(last?.[curve.at])}`).join(", ");
  return (
    <PlotView
      plot={{ ...chart, said, steps: WHOLE, text: (value) => amount(value), across: { text: duration } }}
      data={data}
    />
  );
}
