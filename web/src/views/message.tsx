/** One message: a reply that grows, and what stands below the words of any: marks, versions, what can be done with it. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Version } from "../chat/branch";
import { canGoOn } from "../chat/shown";
import { k, t } from "../i18n";
import type { Chat, Shown } from "../state/chat";
import type { LiveReply } from "../state/live";
import { titleOf, wanted } from "../state/models";
import { toast } from "../state/toasts";
import type { Failure } from "../wire";
import { useDerived } from "./derived";
import { Icon, IconButton, Mark } from "./icons";
import { Markdown } from "./markdown";
import { tellOf } from "./near";
import { usePaced } from "./paced";

interface Props {
  chat: Chat;
  message: Shown;
}

export function QuestionTools({ chat, message, edit }: Props & { edit: () => void }): JSX.Element {
  const sending = message.id.startsWith("local_") && !chat.temporary;
  return (
    <div class="tools">
      <BranchSwitch chat={chat} message={message} />
      <CopyButton text={message.content} />
      <IconButton icon="edit" label={t("Edit and send again")} disabled={sending} onClick={edit} />
    </div>
  );
}

export function Editor({ chat, message, close }: { chat: Chat; message: Shown; close: () => void }): JSX.Element {
  const [text, setText] = useState(message.content);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
  }, []);
  const submit = () => {
    if (text.trim() === "") return;
    close();
    void chat.edit(message, text, wanted.value);
  };
  return (
    <article class="message question is-editing" aria-label={t("Edit your message")}>
      <textarea
        ref={area}
        aria-label={t("Your message")}
        dir="auto"
        value={text}
        rows={Math.min(12, text.split("\n").length + 1)}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") close();
          if (event.key === "Enter" && !event.shiftKey && !isComposing(event)) {
            event.preventDefault();
            submit();
          }
        }}
      />
      <div class="row">
        <span class="hint">{t("Makes a new branch; the old one stays.")}</span>
        <button type="button" class="button" onClick={close}>{t("Cancel")}</button>
        <button type="button" class="button is-main" disabled={text.trim() === ""} onClick={submit}>{t("Send")}</button>
      </div>
    </article>
  );
}

/** An Enter that confirms a candidate of an input method is no Enter. */
export function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

/** Says of a message, by its view key, that it is near, or no more. */
export type Tell = (key: string, isNear: boolean) => void;

/** A reply that has grown before the reader's eyes: it is not drawn again when it has ended. */
export function GrownReply({ chat, message, isNear, tell }: Props & { isNear: boolean; tell: Tell }): JSX.Element {
  const place = (element: HTMLElement | null) => {
    if (element !== null) tellOf(element, (is) => tell(message.viewKey, is));
  };
  const live = message.live?.quiet === false ? message.live : null;
  return (
    <article class={isNear ? "message reply" : "message reply is-far"} aria-label={replyLabel(message)} aria-busy={live !== null} ref={place}>
      <h2 class="sr">{t("Answer")}</h2>
      <Growing live={live} content={message.content} />
      {live !== null && <UnderWay live={live} />}
      <BelowReply chat={chat} message={message} isNear={isNear} />
    </article>
  );
}

export function replyLabel(message: Shown): string {
  return message.model === null || message.model === "" ? t("Answer") : t("Answer of {model}", { model: titleOf(message.model) });
}

export function BelowReply({ chat, message, isNear }: Props & { isNear: boolean }): JSX.Element {
  const isLive = message.live?.quiet === false;
  return (
    <>
      {!isLive && message.status === "refused" && <Refusal text={message.refusal ?? t("This cannot be answered here.")} />}
      {!isLive && message.status === "stopped" && <Ending message={message} />}
      {isNear && <Marks message={message} />}
      {isNear && (isLive ? <div class="tools"><BranchSwitch chat={chat} message={message} /></div> : <ReplyTools chat={chat} message={message} />)}
    </>
  );
}

function Growing({ live, content }: { live: LiveReply | null; content: string }): JSX.Element | null {
  const silent = useDerived(() => (live === null ? content : live.text) === "", [live, content]);
  return silent ? null : <Prose live={live} content={content} />;
}

function Prose({ live, content }: { live: LiveReply | null; content: string }): JSX.Element {
  return <Markdown text={usePaced(live, content)} growing={live !== null} />;
}

function UnderWay({ live }: { live: LiveReply }): JSX.Element | null {
  const refusal = useDerived(() => live.assembly.value.refusal?.text ?? null, [live]);
  const said = useDerived(() => stage(live), [live]);
  if (refusal !== null) return <Refusal text={refusal} />;
  return said === null ? null : <p class="waiting"><Mark talking />{said}</p>;
}

function Ending({ message }: { message: Shown }): JSX.Element {
  const before = message.content === "";
  if (message.finish === "abandoned") return <p class="ending">{t("Stopped, because nobody was following it any more.")}</p>;
  return <p class="ending">{before ? t("Stopped before the first word.") : t("Stopped.")}</p>;
}

function stage(live: LiveReply): string | null {
  const { queue, paused } = live.assembly.value;
  if (live.stopping.value) return t("Stopping…");
  if (live.link.value === "broken") return t("Connection lost. Trying again; nothing is lost…");
  if (paused) return t("One moment: the answer is being continued elsewhere…");
  if (live.text !== "") return null;
  if (queue === null) return t("Thinking…");
  const values = { place: queue.position, wait: Math.max(1, Math.round(queue.waitSeconds ?? 0)) };
  if (queue.waitSeconds === null) return queue.position <= 1 ? t("Next in line…") : t("Place {place} in line…", values);
  return queue.position <= 1 ? t("Next in line, about {wait} s…", values) : t("Place {place} in line, about {wait} s…", values);
}

function Refusal({ text }: { text: string }): JSX.Element {
  return (
    <div class="refusal" role="note">
      <Icon name="warn" />
      <p dir="auto">{text}</p>
    </div>
  );
}

const NOTICES: Record<string, string> = {
  context_shortened: k("Context was shortened: the oldest messages were left out"),
  canned: k("A ready reply: too busy to answer anew"),
  ladder_small: k("The smaller model answers until it is quieter"),
  ladder_short: k("Answers are kept short until it is quieter"),
  answer_capped: k("Answer capped by what is left of the budget"),
};

function Marks({ message }: { message: Shown }): JSX.Element | null {
  const marks = message.notices.map((notice) => {
    const known = NOTICES[notice];
    return known === undefined ? notice.replaceAll("_", " ") : t(known);
  });
  const why = insteadOf(message);
  if (why !== null) marks.unshift(why);
  if (message.finish === "length") marks.push(t("Longest answer reached"));
  if (marks.length === 0) return null;
  return <p class="marks">{marks.map((mark) => <span key={mark} class="mark-text is-notable">{mark}</span>)}</p>;
}

// Another model than the usual one has answered: said at once, and not only in the badge.
function insteadOf(message: Shown): string | null {
  if (message.model === null || message.model === "") return null;
  const asked = message.requested ?? "auto";
  const isAuto = asked === "auto";
  const values = { asked: titleOf(asked), answered: titleOf(message.model) };
  switch (message.reason) {
    case "unavailable":
      return isAuto ? t("The larger one is not there yet – {answered} answered", values) : t("{asked} is not there yet – {answered} answered", values);
    case "ladder":
      return isAuto ? t("Many people are here – {answered} answered", values) : t("Many people are here – {answered} answered instead of {asked}", values);
    case "overflow":
      return isAuto ? t("The larger one is full – {answered} answered", values) : t("{asked} is full – {answered} answered", values);
    default:
      return null;
  }
}

/** Which model answered; pointed at, also why it did. */
function Badge({ message }: { message: Shown }): JSX.Element | null {
  if (!message.model) return null;
  const isAuto = message.reason === "auto";
  const why = insteadOf(message) ?? (isAuto ? t("Chosen for this question") : t("You picked this model"));
  return (
    <span class="mark-text badge" title={`${t("The model that answered")}. ${why}.`}>
      {titleOf(message.model)}{isAuto && <span class="badge-why"> · {t("auto")}</span>}
    </span>
  );
}

function ReplyTools({ chat, message }: { chat: Chat; message: Shown }): JSX.Element {
  const again = () => chat.regenerate(message, wanted.value);
  const rate = (rating: "up" | "down") => void chat.rate(message, message.feedback === rating ? null : rating);
  const isLast = useDerived(() => chat.leaf()?.viewKey === message.viewKey && chat.waiting.value.length === 0, [chat, message]);
  return (
    <>
      {message.status === "failed" && <Failed error={message.error} retry={again} partial={message.content !== ""} />}
      <div class="tools">
        <BranchSwitch chat={chat} message={message} />
        {message.content !== "" && <CopyButton text={message.content} />}
        <IconButton icon="again" label={t("Answer again")} onClick={again} />
        {message.content !== "" && !chat.temporary && (
          <>
            <IconButton icon="up" label={t("Good answer")} pressed={message.feedback === "up"} onClick={() => rate("up")} />
            <IconButton icon="down" label={t("Bad answer")} pressed={message.feedback === "down"} onClick={() => rate("down")} />
          </>
        )}
        <Badge message={message} />
        {isLast && canGoOn(message) && (
          <button type="button" class="button go-on" onClick={() => chat.send(t("Continue where you stopped."), message.id, wanted.value)}>
            {t("Continue")}
          </button>
        )}
      </div>
    </>
  );
}

function Failed({ error, retry, partial }: { error: Failure | null; retry: () => void; partial: boolean }): JSX.Element {
  const wait = error?.retryAfterSeconds;
  return (
    <div class="failure" role="note">
      <Icon name="warn" />
      <p>
        {error?.message ?? t("The answer broke off.")}
        {wait !== undefined && ` ${t("There is room again in about {wait} s.", { wait: Math.ceil(wait) })}`}
        {partial && ` ${t("What had been written is kept above.")}`}
      </p>
      {error?.retryable !== false && <button type="button" class="button" onClick={retry}>{t("Try again")}</button>}
    </div>
  );
}

function BranchSwitch({ chat, message }: { chat: Chat; message: Shown }): JSX.Element | null {
  // As one text, so that only a change of it draws anything: a long conversation has many of these.
  const told = useDerived(() => JSON.stringify(chat.versionOf(message)), [chat, message]);
  const { number, count, previous, following } = JSON.parse(told) as Version;
  if (count < 2) return null;
  return (
    <div class="branches" role="group" aria-label={t("Versions")}>
      <IconButton icon="left" label={t("Version before")} disabled={previous === null} onClick={() => previous !== null && void chat.reading.show(previous)} />
      <span>{number}/{count}</span>
      <IconButton icon="right" label={t("Next version")} disabled={following === null} onClick={() => following !== null && void chat.reading.show(following)} />
    </div>
  );
}

export function CopyButton({ text }: { text: string }): JSX.Element {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!(await toClipboard(text))) return;
    setDone(true);
    setTimeout(() => setDone(false), 1_500);
  };
  return <IconButton icon={done ? "check" : "copy"} label={done ? t("Copied") : t("Copy")} onClick={() => void copy()} />;
}

export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS the clipboard API is not there, except on this very machine.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) toast(t("The browser does not allow copying."), "bad");
    return done;
  }
}
