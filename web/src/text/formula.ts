/** Sets formulas as MathML, which browsers draw themselves: no fonts and no styles to fetch. */
import katex from "katex";

export function setFormulas(root: Element): void {
  for (const place of root.querySelectorAll<HTMLElement>(".formula, .formula-block")) {
    katex.render(place.textContent ?? "", place, {
      output: "mathml",
      displayMode: place.className === "formula-block",
      throwOnError: false,
      trust: false,
      strict: "ignore",
      errorColor: "currentcolor",
      maxExpand: 200, // a macro that expands for ever must not hang the page
      maxSize: 20,
    });
    place.className += " is-set";
  }
}
