/** Colours code. Loaded when the first code block is on screen. */
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import css from "highlight.js/lib/languages/css";
import go from "highlight.js/lib/languages/go";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { clean } from "./markdown";

const LANGUAGES = { bash, c, css, go, javascript, json, python, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

const LONGEST = 60_000; // characters; longer code stays plain rather than holding up the page

export function colour(root: Element): void {
  for (const code of root.querySelectorAll<HTMLElement>("pre > code")) {
    const language = code.className.replace("lang-", "");
    const text = code.textContent ?? "";
    if (text.length > LONGEST || hljs.getLanguage(language) === undefined) continue;
    code.replaceChildren(clean(hljs.highlight(text, { language, ignoreIllegals: true }).value));
    code.className = "is-coloured";
  }
}
