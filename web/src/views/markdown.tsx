/** Shows the markdown of a reply by blocks. A block that has not changed is not touched again. */
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { GrowingBlocks, healTail, splitBlocks } from "../text/blocks";

export type Renderer = typeof import("../text/markdown");

// The renderer is fetched beside the first paint; until it is here the text stands as it is.
const renderer = signal<Renderer | null>(null);

export async function loadRenderer(): Promise<void> {
  renderer.value = await import("../text/markdown");
}

export function Markdown({ text, growing }: { text: string; growing: boolean }): JSX.Element {
  const splitter = useRef(new GrowingBlocks());
  const drawn = useRef<JSX.Element[]>([]);
  const { blocks, definitions } = splitter.current.split(text);
  const last = blocks.length - 1;
  drawn.current = blocks.map((block, index) => {
    const props: BlockProps = {
      text: growing && index === last ? healTail(block) : block,
      definitions: growing ? "" : definitions,
      closed: !growing || index < last,
      render: renderer.value,
    };
    const before = drawn.current[index];
    // The same element is not even compared.
    return before !== undefined && isSame(before.props as BlockProps, props) ? before : <Block key={index} {...props} />;
  });
  return <div class="prose">{drawn.current}</div>;
}

/** What renders markdown, or null until it is here; then whoever asked is drawn again, once. */
export function useRenderer(): Renderer | null {
  return renderer.peek() ?? renderer.value;
}

/** Draws a text that does not grow: its blocks are no components, as a long conversation has thousands of them. */
export function drawStill(place: HTMLElement, text: string, render: Renderer | null): void {
  const { blocks, definitions } = splitBlocks(text);
  place.replaceChildren(...blocks.map((block) => {
    const element = document.createElement("div");
    element.className = render === null ? "block is-plain" : "block";
    if (render === null) element.textContent = block;
    else element.append(render.render(block, definitions));
    return element;
  }));
  if (render !== null) decorate(place);
}

function isSame(a: BlockProps, b: BlockProps): boolean {
  return a.text === b.text && a.definitions === b.definitions && a.closed === b.closed && a.render === b.render;
}

interface BlockProps {
  text: string;
  definitions: string;
  closed: boolean;
  render: Renderer | null;
}

function Block({ text, definitions, closed, render }: BlockProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = place.current;
    if (element === null) return;
    if (render === null) element.textContent = text;
    else if (!closed && growCode(element, text)) return;
    else element.replaceChildren(render.render(text, definitions));
  }, [text, definitions, closed, render]);
  useLayoutEffect(() => {
    if (closed && render !== null && place.current !== null) decorate(place.current, whenIdle);
  }, [text, definitions, closed, render]);
  return <div ref={place} class={render === null ? "block is-plain" : "block"} />;
}

// Colours and formulas come with scripts of their own, when there is something for them.
function decorate(element: HTMLElement, whenColoured: (colour: () => void) => void = (colour) => colour()): void {
  if (element.querySelector("pre > code[class^='lang-']:not(.lang-)") !== null) {
    void import("../text/highlight").then(({ colour }) => whenColoured(() => colour(element)));
  }
  if (element.querySelector(".formula, .formula-block") !== null) {
    void import("../text/formula").then(({ setFormulas }) => setFormulas(element));
  }
}

const COLOUR_MS = 1_000; // at the latest

// Colours change no height, so they can wait until nothing else is to be done for the answer that goes on.
function whenIdle(work: () => void): void {
  if (typeof requestIdleCallback === "undefined") setTimeout(work, COLOUR_MS / 4);
  else requestIdleCallback(work, { timeout: COLOUR_MS });
}

// Code that is still being written grows in place: it keeps its scroll position and what is selected.
function growCode(element: HTMLElement, text: string): boolean {
  const [head = "", body] = cutOnce(text, "\n");
  if (!/^(?:`{3,}|~{3,})/.test(head) || body === null) return false;
  const code = element.dataset["fence"] === head ? element.querySelector("pre > code") : null;
  element.dataset["fence"] = head;
  if (code === null) return false;
  code.textContent = body.replace(/\n[`~]{1,3}$/, "\n"); // the closing fence, half arrived
  return true;
}

function cutOnce(text: string, mark: string): [string, string | null] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + mark.length)];
}
