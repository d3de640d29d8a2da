/** The last half hour in lines. Fetched with its drawing library when the fleet is first looked at. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { language, locale, t } from "../../i18n";
import type { Point } from "../../wire-admin";
import { amount, percent, seconds } from "./figures";
import { PARTS, PlotView, WHOLE, type Curve } from "./plot";

interface Line extends Curve {
  of: (point: Point) => number | null;
}

interface Chart {
  title: string;
  text: (value: number | null) => string;
  least: number;
  steps: number[];
  curves: readonly Line[];
}

export function Charts({ points }: { points: readonly Point[] }): JSX.Element {
  const charts: readonly Chart[] = [
    {
      title: t("Answers"),
      text: (value) => amount(value),
      least: 4,
      steps: WHOLE,
      curves: [
        { name: t("running"), colour: "--accent", of: (point) => point[2] },
        { name: t("waiting"), colour: "--warm", of: (point) => point[1] },
      ],
    },
    {
      title: t("Tokens a second"),
      text: (value) => amount(value),
      least: 10,
      steps: WHOLE,
      curves: [{ name: t("all replicas"), colour: "--accent", of: (point) => point[3] }],
    },
    {
      title: t("Latency, 95 %"),
      text: seconds,
      least: 0.1,
      steps: PARTS,
      curves: [
        { name: t("first text"), colour: "--accent", of: (point) => point[4] },
        { name: t("between tokens"), colour: "--warm", of: (point) => point[5] },
      ],
    },
    {
      title: t("Load without any rung"),
      text: percent,
      least: 1,
      steps: PARTS,
      curves: [{ name: t("load"), colour: "--accent", of: (point) => point[7] }],
    },
  ];
  return <div class="charts">{charts.map((chart) => <ChartView key={`${chart.title}${language.value}`} chart={chart} points={points} />)}</div>;
}

function ChartView({ chart, points }: { chart: Chart; points: readonly Point[] }): JSX.Element {
  const data = useMemo<uPlot.AlignedData>(
    () => [points.map((point) => point[0] / 1_000), ...chart.curves.map((curve) => points.map(curve.of))], [points],
  );
  const last = points[points.length - 1];
  const said = chart.curves.map((curve) => `${curve.name} ${chart.text(last === undefined ? null : curve.of(last))}`).join(", ");
  return <PlotView plot={{ ...chart, said, across: { isTime: true, text: clock } }} data={data} />;
}

function clock(time: number): string {
  const when = new Date(time * 1_000);
  const seconds = when.getSeconds() === 0 ? {} : { second: "2-digit" as const }; // half minutes, while the past is short
  return when.toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit", ...seconds });
}
