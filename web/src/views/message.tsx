/** One message: what was asked, or a reply with its marks, its branch switch and what can be done with it. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Chat, Shown } from "../state/chat";
import { ROOT } from "../chat/tree";
import type { LiveReply } from "../state/live";
import { titleOf, wanted } from "../state/models";
import { toast } from "../state/toasts";
import type { Failure } from "../wire";
import { Icon, IconButton, Mark } from "./icons";
import { Markdown } from "./markdown";
import { usePaced } from "./paced";

export function MessageView({ chat, message }: { chat: Chat; message: Shown }): JSX.Element {
  return message.role === "user" ? <Question chat={chat} message={message} /> : <Reply chat={chat} message={message} />;
}

function Question({ chat, message }: { chat: Chat; message: Shown }): JSX.Element {
  const [editing, setEditing] = useState(false);
  const sending = message.id.startsWith("local_") && !chat.temporary;
  if (editing) return <Editor chat={chat} message={message} close={() => setEditing(false)} />;
  return (
    <article class="message question" aria-label="You">
      <h2 class="sr">You</h2>
      <div class="bubble" dir="auto">{message.content}</div>
      <div class="tools">
        <BranchSwitch chat={chat} message={message} />
        <CopyButton text={message.content} />
        <IconButton icon="edit" label="Edit and send again" disabled={sending} onClick={() => setEditing(true)} />
      </div>
    </article>
  );
}

function Editor({ chat, message, close }: { chat: Chat; message: Shown; close: () => void }): JSX.Element {
  const [text, setText] = useState(message.content);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
  }, []);
  const submit = () => {
    if (text.trim() === "") return;
    close();
    chat.send(text, message.parentId, wanted.value);
  };
  return (
    <article class="message question is-editing" aria-label="Edit your message">
      <textarea
        ref={area}
        aria-label="Your message"
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
        <span class="hint">Makes a new branch; the old one stays.</span>
        <button type="button" class="button" onClick={close}>Cancel</button>
        <button type="button" class="button is-main" disabled={text.trim() === ""} onClick={submit}>Send</button>
      </div>
    </article>
  );
}

/** An Enter that confirms a candidate of an input method is no Enter. */
export function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

function Reply({ chat, message }: { chat: Chat; message: Shown }): JSX.Element {
  const live = message.live?.quiet === false ? message.live : null;
  const growing = live !== null;
  const text = usePaced(live?.text ?? message.content, growing);
  const refusal = refusalOf(message);
  return (
    <article class="message reply" aria-label={`Answer${message.model === null ? "" : ` of ${titleOf(message.model)}`}`} aria-busy={growing}>
      <h2 class="sr">Answer</h2>
      {text !== "" && <Markdown text={text} growing={growing} />}
      {refusal !== null && <Refusal text={refusal} />}
      {live !== null && refusal === null && <Waiting live={live} silent={text === ""} />}
      {!growing && message.status === "stopped" && <p class="ending">Stopped{message.content === "" ? " before the first word" : ""}.</p>}
      <Marks message={message} />
      {growing ? <div class="tools"><BranchSwitch chat={chat} message={message} /></div> : <ReplyTools chat={chat} message={message} />}
    </article>
  );
}

function refusalOf(message: Shown): string | null {
  if (message.live?.quiet === false) return message.live.assembly.value.refusal?.text ?? null;
  if (message.status !== "refused") return null;
  return message.refusal ?? "This cannot be answered here.";
}

function Waiting({ live, silent }: { live: LiveReply; silent: boolean }): JSX.Element | null {
  const { queue, paused } = live.assembly.value;
  const broken = live.link.value === "broken";
  if (!silent && !paused && !broken && !live.stopping.value) return null;
  return <p class="waiting"><Mark talking />{stage(live, queue, paused, broken)}</p>;
}

function stage(
  live: LiveReply, queue: { position: number; waitSeconds: number | null } | null, paused: boolean, broken: boolean,
): string {
  if (live.stopping.value) return "Stopping…";
  if (broken) return "Connection lost. Trying again; nothing is lost…";
  if (paused) return "One moment: the answer is being continued elsewhere…";
  if (queue === null) return "Thinking…";
  const wait = queue.waitSeconds === null ? "" : `, about ${Math.max(1, Math.round(queue.waitSeconds))} s`;
  return queue.position <= 1 ? `Next in line${wait}…` : `Place ${queue.position} in line${wait}…`;
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
  context_shortened: "Context was shortened: the oldest messages were left out",
  canned: "A ready reply: too busy to answer anew",
  ladder_small: "The smaller model answers until it is quieter",
  ladder_short: "Answers are kept short until it is quieter",
  answer_capped: "Answer capped by what is left of the budget",
};

const REASONS: Record<string, (asked: string, answered: string) => string> = {
  unavailable: (asked, answered) => `${asked === "Auto" ? "The larger one" : asked} is not there yet – ${answered} answered`,
  ladder: (asked, answered) => `Many people are here – ${answered} answered${asked === "Auto" ? "" : ` instead of ${asked}`}`,
  overflow: (asked, answered) => `${asked === "Auto" ? "The larger one" : asked} is full – ${answered} answered`,
};

function Marks({ message }: { message: Shown }): JSX.Element | null {
  const marks: ComponentChildren[] = [];
  if (message.model !== null && message.model !== "") {
    const said = REASONS[message.reason ?? ""]?.(titleOf(message.requested ?? "auto"), titleOf(message.model));
    if (said !== undefined) marks.push(<span key="model" class="mark-text is-notable">{said}</span>);
  }
  for (const notice of message.notices) {
    marks.push(<span key={notice} class="mark-text is-notable">{NOTICES[notice] ?? notice.replaceAll("_", " ")}</span>);
  }
  if (message.finish === "length") marks.push(<span key="length" class="mark-text is-notable">Longest answer reached</span>);
  return marks.length === 0 ? null : <p class="marks">{marks}</p>;
}

function ReplyTools({ chat, message }: { chat: Chat; message: Shown }): JSX.Element {
  const again = () => chat.regenerate(message, wanted.value);
  const rate = (rating: "up" | "down") => void chat.rate(message, message.feedback === rating ? null : rating);
  return (
    <>
      {message.status === "failed" && <Failed error={message.error} retry={again} partial={message.content !== ""} />}
      <div class="tools">
        <BranchSwitch chat={chat} message={message} />
        {message.content !== "" && <CopyButton text={message.content} />}
        <IconButton icon="again" label="Answer again" onClick={again} />
        {message.content !== "" && !chat.temporary && (
          <>
            <IconButton icon="up" label="Good answer" pressed={message.feedback === "up"} onClick={() => rate("up")} />
            <IconButton icon="down" label="Bad answer" pressed={message.feedback === "down"} onClick={() => rate("down")} />
          </>
        )}
        {message.model && <span class="mark-text" title="The model that answered">{titleOf(message.model)}</span>}
      </div>
    </>
  );
}

function Failed({ error, retry, partial }: { error: Failure | null; retry: () => void; partial: boolean }): JSX.Element {
  return (
    <div class="failure" role="note">
      <Icon name="warn" />
      <p>
        {error?.message ?? "The answer broke off."}
        {partial && " What had been written is kept above."}
      </p>
      {error?.retryable !== false && <button type="button" class="button" onClick={retry}>Try again</button>}
    </div>
  );
}

function BranchSwitch({ chat, message }: { chat: Chat; message: Shown }): JSX.Element | null {
  const parent = message.parentId ?? ROOT;
  const all = chat.siblings.value.get(parent) ?? [];
  if (all.length < 2) return null;
  const index = all.findIndex((one) => one.id === message.id);
  const show = (next: number) => {
    const sibling = all[next];
    if (sibling !== undefined) chat.choose({ [parent]: sibling.id });
  };
  return (
    <div class="branches" role="group" aria-label="Versions">
      <IconButton icon="left" label="Version before" disabled={index <= 0} onClick={() => show(index - 1)} />
      <span>{index + 1}/{all.length}</span>
      <IconButton icon="right" label="Next version" disabled={index >= all.length - 1} onClick={() => show(index + 1)} />
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
  return <IconButton icon={done ? "check" : "copy"} label={done ? "Copied" : "Copy"} onClick={() => void copy()} />;
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
    if (!done) toast("The browser does not allow copying.", "bad");
    return done;
  }
}
