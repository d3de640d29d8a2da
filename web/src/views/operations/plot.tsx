/** Lines over time or over something else. Fetched with its drawing library by whatever draws first. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Curve {
  name: string;
  colour: "--accent" | "--warm"; // a custom property of the page
}

/** What the lines run along. */
export interface Across {
  text: (value: number) => string;
  isTime?: boolean;
  isLogarithmic?: boolean;
}

export interface Plot {
  title: string;
  said: string; // for whoever can't see it
  across: Across;
  text: (value: number | null) => string;
  least: number; // the highest value that the axis shows at least
  steps: number[]; // between two marks of the axis
  isLogarithmic?: boolean; // the heights: then `least` and `steps` are not asked
  curves: readonly Curve[];
}

export const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];
export const PARTS = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60];
const HEIGHT_PX = 150;

/** The lines of `data`: first the places along, then the heights of each curve. It is drawn anew when `data` is another. */
export function PlotView({ plot, data }: { plot: Plot; data: uPlot.AlignedData }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const element = box.current!;
    const draw = () => {
      drawn.current?.destroy();
      drawn.current = new uPlot(optionsOf(plot, element), latest.current, element);
    };
    draw();
    const size = new ResizeObserver(() => drawn.current?.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
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
      drawn.current?.destroy();
      drawn.current = null;
    };
  }, []);
  useEffect(() => drawn.current?.setData(data), [data]);
  return (
    <figure class="chart">
      <figcaption>
        <strong>{plot.title}</strong>
        {plot.curves.map((curve) => <span key={curve.name} class={`curve curve${curve.colour}`}>{curve.name}</span>)}
      </figcaption>
      <div ref={box} role="img" aria-label={`${plot.title}: ${plot.said}`} />
    </figure>
  );
}

function optionsOf(plot: Plot, element: HTMLElement): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => resolved(element, name);
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--ink-2"), grid, ticks: { show: false }, font: `12px ${style.fontFamily}` };
  const { across } = plot;
  const heights: uPlot.Scale = plot.isLogarithmic === true
    ? { distr: 3 }
    : { range: (_, __, highest) => [0, Math.max(highest || 0, plot.least) * 1.1] };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    padding: [8, 34, 0, 0], // half of the last mark is beyond the last point
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: across.isTime === true, distr: across.isLogarithmic === true ? 3 : 1 }, y: heights },
    axes: [
      { ...axis, values: (_, marks) => marks.map((mark) => (mark === null ? "" : across.text(mark))), space: 80, size: 28 },
      {
        ...axis, values: (_, marks) => marks.map((mark) => (mark === null ? "" : plot.text(mark))), size: 58, space: 26,
        ...(plot.isLogarithmic === true ? {} : { incrs: plot.steps }),
      },
    ],
    series: [{}, ...plot.curves.map((curve) => ({ label: curve.name, stroke: colour(curve.colour), width: 2, points: { show: false }, spanGaps: true }))],
  };
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
