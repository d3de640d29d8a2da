/**
 * Finds formulas in markdown: `\(x\)`, `\[x\]` and `$$x$$`. A single dollar stays a dollar, because
 * replies name prices far more often than they use it for formulas.
 */
import type { MarkdownIt } from "markdown-it";

const PAIRS: readonly (readonly [string, string, boolean])[] = [
  ["$$", "$$", true],
  ["\\[", "\\]", true],
  ["\\(", "\\)", false],
];

export function addMath(markdown: MarkdownIt): void {
  markdown.inline.ruler.before("escape", "formula", (state, silent) => {
    const pair = PAIRS.find(([open]) => state.src.startsWith(open, state.pos));
    if (pair === undefined) return false;
    const [open, close, display] = pair;
    const end = state.src.indexOf(close, state.pos + open.length);
    if (end < 0 || end === state.pos + open.length) return false;
    if (!silent) {
      const token = state.push("formula", "span", 0);
      token.content = state.src.slice(state.pos + open.length, end).trim();
      token.markup = display ? "formula-block" : "formula";
    }
    state.pos = end + close.length;
    return true;
  });
  // A formula over several lines, with blank ones in it, is no paragraph.
  markdown.block.ruler.before(
    "fence",
    "formula_block",
    (state, first, last, silent) => {
      const begin = state.bMarks[first]! + state.tShift[first]!;
      const pair = PAIRS.slice(0, 2).find(([open]) => state.src.startsWith(open, begin));
      if (pair === undefined) return false;
      const [open, close] = pair;
      const end = state.src.indexOf(close, begin + open.length);
      if (end < 0 || end >= state.eMarks[last - 1]!) return false;
      let line = first;
      while (line < last && state.eMarks[line]! < end + close.length) line++;
      if (state.src.slice(end + close.length, state.eMarks[line]).trim() !== "") return false;
      if (silent) return true;
      const token = state.push("formula", "div", 0);
      token.content = state.src.slice(begin + open.length, end).trim();
      token.markup = "formula-block";
      state.line = line + 1;
      return true;
    },
    { alt: ["paragraph", "blockquote", "list"] },
  );
  markdown.renderer.rules["formula"] = (tokens, index) => {
    const token = tokens[index]!;
    return `<span class="${token.markup}">${markdown.utils.escapeHtml(token.content)}</span>`;
  };
}
