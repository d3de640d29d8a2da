/**
 * Some messages one below the other. Their words are drawn by hand and stay, as a long conversation has hundreds of
 * them; what stands below the words is a component, and there while the message is near.
 */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import type { Chat, Shown } from "../state/chat";
import { drawStill, useRenderer, type Renderer } from "./markdown";
import { BelowReply, Editor, GrownReply, QuestionTools, replyLabel, type Tell } from "./message";
import { isTold, tellOf, useNear } from "./near";

const AT_FIRST = 8; // messages at the end that are drawn in full before it is known which are in sight
const NONE: ReadonlySet<string> = new Set();

export function StretchView({ chat, messages, isLast }: { chat: Chat; messages: Shown[]; isLast: boolean }): JSX.Element {
  const [isNear, place] = useNear(isLast);
  const [told, setTold] = useState<ReadonlySet<string>>(() => new Set(isLast ? messages.slice(-AT_FIRST).map((one) => one.viewKey) : []));
  const [editing, setEditing] = useState<string | null>(null);
  const grown = useRef(new Set<string>());
  const render = useRenderer();
  const near = isNear ? told : NONE;
  const tell: Tell = (key, is) => setTold((before) => (before.has(key) === is ? before : changed(before, key)));

  const drawn = (message: Shown) => {
    const key = message.viewKey;
    if (key === editing) return <Editor key={key} chat={chat} message={message} close={() => setEditing(null)} />;
    if (message.live?.quiet === false) grown.current.add(key);
    const isNear = near.has(key) || !isTold;
    if (grown.current.has(key)) return <GrownReply key={key} chat={chat} message={message} isNear={isNear} tell={tell} />;
    return still(chat, message, isNear, render, tell, setEditing);
  };
  // The browser looks at each message of a stretch that is near, and at the others only as a whole.
  return (
    <div class={isNear ? "stretch is-near" : "stretch"} style={{ "--messages": messages.length }} ref={place}>
      {messages.map(drawn)}
    </div>
  );
}

function changed(before: ReadonlySet<string>, key: string): ReadonlySet<string> {
  const next = new Set(before);
  if (!next.delete(key)) next.add(key);
  return next;
}

// What has not changed is the same element, which is not even compared.
const elements = new WeakMap<Shown, { isNear: boolean; label: string; render: Renderer | null; element: JSX.Element }>();

function still(chat: Chat, message: Shown, isNear: boolean, render: Renderer | null, tell: Tell, edit: (key: string) => void): JSX.Element {
  const isQuestion = message.role === "user";
  const label = isQuestion ? t("You") : replyLabel(message);
  const known = elements.get(message);
  if (known !== undefined && known.isNear === isNear && known.label === label && known.render === render) return known.element;
  const key = message.viewKey;
  const place = (element: HTMLElement | null) => {
    if (element === null) return;
    tellOf(element, (is) => tell(key, is));
    drawWords(element, message, isQuestion ? null : render);
  };
  const hasEnd = isNear || message.status === "stopped" || message.status === "refused";
  const element = (
    <article key={key} class={`message ${isQuestion ? "question" : "reply"}${isNear ? "" : " is-far"}`} aria-label={label}
      aria-busy={isQuestion ? undefined : false} ref={place}>
      {isQuestion && isNear && <QuestionTools chat={chat} message={message} edit={() => edit(key)} />}
      {!isQuestion && hasEnd && <BelowReply chat={chat} message={message} isNear={isNear} />}
    </article>
  );
  elements.set(message, { isNear, label, render, element });
  return element;
}

// What was drawn into a message: it is not drawn again when only what stands below it changes.
const words = new WeakMap<Element, { content: string; heading: string; render: Renderer | null }>();

function drawWords(article: HTMLElement, { role, content }: Shown, render: Renderer | null): void {
  const heading = role === "user" ? t("You") : t("Answer");
  const before = words.get(article);
  if (before?.content === content && before.heading === heading && before.render === render) return;
  if (before !== undefined) for (const one of [...article.children].slice(0, before.content === "" ? 1 : 2)) one.remove();
  words.set(article, { content, heading, render });
  const title = document.createElement("h2");
  title.className = "sr";
  title.textContent = heading;
  const body = document.createElement("div");
  if (content !== "") article.prepend(title, body);
  else article.prepend(title);
  if (role === "user") {
    body.className = "bubble";
    body.dir = "auto";
    body.textContent = content;
  } else {
    body.className = "prose";
    drawStill(body, content, render);
  }
}
