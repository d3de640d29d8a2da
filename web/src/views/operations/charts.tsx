/** The last half hour in lines. Fetched with its drawing library when the fleet is first looked at. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { language, locale, t } from "../../i18n";
import type { Point } from "../../wire-admin";
import { amount, percent, seconds } from "./figures";

interface Curve {
  name: string;
  colour: string; // a custom property of the page
  of: (point: Point) => number | null;
}

interface Chart {
  title: string;
  text: (value: number | null) => string;
  least: number; // the highest value that the axis shows at least
  steps: number[]; // between two marks of the axis
  curves: readonly Curve[];
}

const HEIGHT_PX = 150;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];
const PARTS = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60];

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
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = dataOf(chart, points);
  useEffect(() => {
    const element = box.current!;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(chart, element), dataOf(chart, points), element);
    };
    draw();
    const size = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    size.observe(element);
    // Colours are drawn, not styled: with the theme they are drawn again.
    const theme = new MutationObserver(draw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      size.disconnect();
      theme.disconnect();
      dark.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [points]);
  const last = points[points.length - 1];
  const said = chart.curves.map((curve) => `${curve.name} ${chart.text(last === undefined ? null : curve.of(last))}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <strong>{chart.title}</strong>
        {chart.curves.map((curve) => <span key={curve.name} class={`curve curve${curve.colour}`}>{curve.name}</span>)}
      </figcaption>
      <div ref={box} role="img" aria-label={`${chart.title}: ${said}`} />
    </figure>
  );
}

function dataOf(chart: Chart, points: readonly Point[]): uPlot.AlignedData {
  return [points.map((point) => point[0] / 1_000), ...chart.curves.map((curve) => points.map(curve.of))];
}

function optionsOf(chart: Chart, element: HTMLElement): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => resolved(element, name);
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--ink-2"), grid, ticks: { show: false }, font: `12px ${style.fontFamily}` };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    padding: [8, 34, 0, 0], // half of the last time is beyond the last point
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, __, highest) => [0, Math.max(highest || 0, chart.least) * 1.1] } },
    axes: [
      { ...axis, values: (_, times) => times.map(clock), space: 80, size: 28 },
      { ...axis, values: (_, values) => values.map(chart.text), size: 58, space: 26, incrs: chart.steps },
    ],
    series: [{}, ...chart.curves.map((curve) => ({ label: curve.name, stroke: colour(curve.colour), width: 2, points: { show: false }, spanGaps: true }))],
  };
}

function clock(time: number): string {
  const when = new Date(time * 1_000);
  const seconds = when.getSeconds() === 0 ? {} : { second: "2-digit" as const }; // half minutes, while the past is short
  return when.toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit", ...seconds });
}

// What a custom property comes to here: a canvas does not know light-dark().
function resolved(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
