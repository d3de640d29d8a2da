/**
 * Markdown of a reply to safe HTML. Raw HTML stays text, images become links, and what comes out has
 * passed DOMPurify with a short list of tags: nothing in a reply can run or fetch anything.
 */
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { t } from "../i18n";
import { addMath } from "./mathmarks";

const WEB_LINK = /^(?:https?:\/\/|mailto:)/i;

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: false, typographer: false });
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
markdown.validateLink = (url) => WEB_LINK.test(url.trim());
addMath(markdown);

const { rules, renderToken } = {
  rules: markdown.renderer.rules,
  renderToken: markdown.renderer.renderToken.bind(markdown.renderer),
};
const escape = markdown.utils.escapeHtml;

rules["fence"] = (tokens, index) => {
  const token = tokens[index]!;
  const language = /^[\w+#.-]{1,30}/.exec(token.info.trim())?.[0] ?? "";
  return codeBlock(token.content, language);
};
rules["code_block"] = (tokens, index) => codeBlock(tokens[index]!.content, "");

rules["image"] = (tokens, index) => {
  const token = tokens[index]!;
  const address = String(token.attrGet("src") ?? "");
  const name = escape(t("Image: {name}", { name: token.content === "" ? address : token.content }));
  return WEB_LINK.test(address) ? `<a class="image-link" href="${escape(address)}">${name}</a>` : `<span>${name}</span>`;
};

rules["table_open"] = () => '<div class="table-scroll" tabindex="0"><table>';
rules["table_close"] = () => "</table></div>";
for (const name of ["th_open", "td_open"]) {
  rules[name] = (tokens, index, options) => {
    const token = tokens[index]!;
    const side = /text-align:(\w+)/.exec(String(token.attrGet("style") ?? ""))?.[1];
    token.attrs = side === undefined ? null : [["class", `to-${side}`]]; // no style attributes: the policy
    return renderToken(tokens, index, options);
  };
}
// A message has a heading of its own (for screen readers); those inside it come below and leave no level out.
for (const name of ["heading_open", "heading_close"]) {
  rules[name] = (tokens, index, options) => {
    const token = tokens[index]!;
    const level = Number(token.tag.charAt(1));
    if (!token.tag.startsWith("h") || Number.isNaN(level)) return renderToken(tokens, index, options);
    const shown = Math.max(3, level);
    return name === "heading_open" ? `<h${shown} class="h${level}" dir="auto">` : `</h${shown}>\n`;
  };
}
for (const name of ["paragraph_open", "list_item_open", "blockquote_open"]) {
  rules[name] = (tokens, index, options) => {
    tokens[index]!.attrSet("dir", "auto");
    return renderToken(tokens, index, options);
  };
}

function codeBlock(code: string, language: string): string {
  const name = escape(language);
  return (
    `<div class="code"><div class="code-head"><span class="code-language">${name || "text"}</span>` +
    `<button type="button" class="copy-code">${escape(t("Copy"))}</button></div>` +
    `<pre tabindex="0" dir="ltr"><code class="lang-${name}">${escape(code)}</code></pre></div>`
  );
}

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName !== "A") return;
  const address = node.getAttribute("href");
  if (address === null) return;
  node.setAttribute("rel", "noopener noreferrer");
  node.setAttribute("target", "_blank");
  node.setAttribute("title", address);
});

const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["class", "dir", "href", "rel", "start", "tabindex", "target", "title", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const, // text of it would be parsed once more
};

/** What a block looks like, to be put on the page. */
export function render(block: string, definitions: string): DocumentFragment {
  const source = definitions !== "" && block.includes("[") ? `${block}\n\n${definitions}` : block;
  return clean(markdown.render(source));
}

/** Also for the marks of the highlighter. */
export function clean(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, ALLOWED);
}
