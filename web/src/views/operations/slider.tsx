/** A slider with its name and its value in words. */
import type { JSX } from "preact";
import { placeOf, STEPS, valueAt, type Range } from "../../text/slider";

export function Slider(props: { id: string; name: string; range: Range; value: number; text: string; give: (value: number) => void }): JSX.Element {
  return (
    <div class="slider">
      <label for={props.id}>{props.name}</label>
      <span class="numbers" aria-hidden="true">{props.text}</span>
      <input
        id={props.id} type="range" min={0} max={STEPS} step={1} value={placeOf(props.range, props.value)} aria-valuetext={props.text}
        onInput={(event) => props.give(valueAt(props.range, Number(event.currentTarget.value)))}
      />
    </div>
  );
}
