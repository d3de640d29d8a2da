/** Sets formulas as MathML, which browsers draw themselves: no fonts and no styles to fetch. */
import katex from "katex";

// A block that changed while this script was fetched asks twice: what is set is no source any more.
const NOT_SET = ".formula:not(.is-set), .formula-block:not(.is-set)";

export function setFormulas(root: Element): void {
  for (const place of root.querySelectorAll<HTMLElement>(NOT_SET)) {
    const source = place.textContent ?? "";
    try {
      katex.render(source, place, {
        output: "mathml",
        displayMode: place.className === "formula-block",
        throwOnError: true,
        trust: false,
        strict: "ignore",
        maxExpand: 200, // a macro that expands for ever must not hang the page
        maxSize: 20,
      });
    } catch (error) {
      if (!(error instanceof katex.ParseError)) throw error;
      // What is no formula stays as it was written: what the library would put there has a style of its own.
      place.textContent = source;
      continue;
    }
    place.className += " is-set";
  }
}
