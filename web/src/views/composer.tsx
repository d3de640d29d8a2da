/** Where a message is written. The draft is never lost, and an over-long one is answered before it is sent. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import type { Chat } from "../state/chat";
import { draftSignal, setDraft } from "../state/drafts";
import { labelOf, offered, wanted } from "../state/models";
import { account } from "../state/session";
import { MOST_WAITING } from "../state/waiting";
import { bytesOver, fitsTheBox } from "../text/limit";
import { Icon, IconButton } from "./icons";
import { isComposing } from "./message";

const FALLBACK_BYTES = 256_000; // until the server has said its own limit

export function Composer({ chat, onSend }: { chat: Chat; onSend: () => void }): JSX.Element {
  const place = chat.draftPlace;
  const draft = draftSignal(place);
  const area = useRef<HTMLTextAreaElement>(null);
  const [leftOut, setLeftOut] = useState<string | null>(null);
  const running = chat.running.value;
  const text = draft.value;
  const tooLong = lengthProblem(text);
  const later = running !== null || chat.waiting.value.length > 0;
  const full = later && chat.line.isFull;
  const ready = text.trim() !== "" && tooLong === null && !full && chat.reading.state.value === "ready";

  useLayoutEffect(() => grow(area.current), [text, place]);
  useEffect(() => {
    setLeftOut(null);
    if (matchMedia("(pointer: fine)").matches) area.current?.focus(); // no keyboard pops up on a phone
  }, [place]);

  const send = () => {
    if (!ready) return;
    const said = text;
    setDraft(place, ""); // before anything else: a second Enter finds nothing to send
    setLeftOut(null);
    if (!later || !chat.sendLater(said, wanted.value)) chat.send(said, chat.leaf()?.id ?? null, wanted.value);
    onSend();
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = event.clipboardData?.getData("text/plain") ?? "";
    setLeftOut(null);
    if (fitsTheBox(text.length + pasted.length, limitBytes())) return;
    event.preventDefault(); // the box would be slow with it, and it can't be sent
    setLeftOut(tooLongText(new TextEncoder().encode(text + pasted).length, t("What you pasted was left out.")));
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {chat.problem.value !== null && (
        <Note text={chat.problem.value.text} close={() => (chat.problem.value = null)} />
      )}
      {leftOut !== null && <Note text={leftOut} close={() => setLeftOut(null)} />}
      {tooLong !== null && <Note text={tooLong} />}
      {full && <Note text={t("{count} messages wait already.", { count: MOST_WAITING })} />}
      <div class="composer-box">
        <textarea
          ref={area}
          class="composer-text"
          aria-label={t("Your message")}
          placeholder={t("Write a message")}
          dir="auto"
          rows={1}
          enterkeyhint="send"
          value={text}
          aria-invalid={tooLong !== null}
          onInput={(event) => setDraft(place, event.currentTarget.value)}
          onPaste={onPaste}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
            event.preventDefault();
            send();
          }}
        />
        <div class="composer-row">
          <ModelPicker />
          <span class="hint wide-only">{t("Enter sends · Shift+Enter for a new line")}</span>
          {running !== null && (
            <button type="button" class="round is-stop" aria-label={t("Stop the answer")} title={t("Stop")} disabled={running.stopping.value}
              onClick={() => void chat.stop(running)}>
              <Icon name="stop" />
            </button>
          )}
          {(running === null || text.trim() !== "") && <SendButton ready={ready} later={later} />}
        </div>
      </div>
    </form>
  );
}

function SendButton({ ready, later }: { ready: boolean; later: boolean }): JSX.Element {
  const label = later ? t("Send after this answer") : t("Send");
  return <button type="submit" class="round" aria-label={label} title={label} disabled={!ready}><Icon name="send" /></button>;
}

function Note({ text, close }: { text: string; close?: () => void }): JSX.Element {
  return (
    <div class="problem" role="alert">
      <Icon name="warn" />
      <p>{text}</p>
      {close !== undefined && <IconButton icon="close" label={t("Close this note")} onClick={close} />}
    </div>
  );
}

function ModelPicker(): JSX.Element {
  return (
    <label class="picker">
      <span class="sr">{t("Model")}</span>
      <select value={wanted.value} onChange={(event) => (wanted.value = event.currentTarget.value)}>
        <option value="auto">{t("Auto")}</option>
        {offered.value.map((one) => (
          <option key={one.id} value={one.id}>{labelOf(one)}</option>
        ))}
      </select>
    </label>
  );
}

function limitBytes(): number {
  return account.value?.limits?.messageBytes ?? FALLBACK_BYTES;
}

function lengthProblem(text: string): string | null {
  const bytes = bytesOver(text, limitBytes());
  return bytes === null ? null : tooLongText(bytes, t("Shorten it, or send it in parts."));
}

function tooLongText(bytes: number, advice: string): string {
  const values = { size: kilobytes(bytes), limit: kilobytes(limitBytes()) };
  const tokens = account.value?.limits?.messageTokens;
  const said = tokens === undefined
    ? t("This message is too long: {size} of at most {limit}.", values)
    : t("This message is too long: {size} of at most {limit} ({tokens} tokens).", { ...values, tokens });
  return `${said} ${advice}`;
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1_000).toLocaleString(undefined, { maximumFractionDigits: 1 })} kB`;
}

function grow(area: HTMLTextAreaElement | null): void {
  if (area === null) return;
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
}
