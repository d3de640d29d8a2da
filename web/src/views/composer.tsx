/** Where a message is written. The draft is never lost, and an over-long one is answered before it is sent. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Chat } from "../state/chat";
import { draftSignal, setDraft } from "../state/drafts";
import { labelOf, offered, wanted } from "../state/models";
import { account } from "../state/session";
import { Icon, IconButton } from "./icons";
import { isComposing } from "./message";

const FALLBACK_BYTES = 256_000; // until the server has said its own limit

export function Composer({ chat, onSend }: { chat: Chat; onSend: () => void }): JSX.Element {
  const place = chat.draftPlace;
  const draft = draftSignal(place);
  const area = useRef<HTMLTextAreaElement>(null);
  const running = chat.running.value;
  const text = draft.value;
  const tooLong = lengthProblem(text);
  const ready = text.trim() !== "" && tooLong === null && running === null && chat.state.value === "ready";

  useLayoutEffect(() => grow(area.current), [text, place]);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) area.current?.focus(); // no keyboard pops up on a phone
  }, [place]);

  const send = () => {
    if (!ready) return;
    const said = text;
    setDraft(place, ""); // before anything else: a second Enter finds nothing to send
    chat.send(said, chat.leaf()?.id ?? null, wanted.value);
    onSend();
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
        <div class="problem" role="alert">
          <Icon name="warn" />
          <p>{chat.problem.value.text}</p>
          <IconButton icon="close" label="Close this note" onClick={() => (chat.problem.value = null)} />
        </div>
      )}
      {tooLong !== null && <p class="problem" role="alert"><Icon name="warn" /><span>{tooLong}</span></p>}
      <div class="composer-box">
        <textarea
          ref={area}
          class="composer-text"
          aria-label="Your message"
          placeholder="Write a message"
          dir="auto"
          rows={1}
          enterkeyhint="send"
          value={text}
          aria-invalid={tooLong !== null}
          onInput={(event) => setDraft(place, event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
            event.preventDefault();
            send();
          }}
        />
        <div class="composer-row">
          <ModelPicker />
          <span class="hint wide-only">Enter sends · Shift+Enter for a new line</span>
          {running !== null ? (
            <button type="button" class="round is-stop" aria-label="Stop the answer" title="Stop" disabled={running.stopping.value}
              onClick={() => void chat.stop(running)}>
              <Icon name="stop" />
            </button>
          ) : (
            <button type="submit" class="round" aria-label="Send" title="Send" disabled={!ready}><Icon name="send" /></button>
          )}
        </div>
      </div>
    </form>
  );
}

function ModelPicker(): JSX.Element {
  return (
    <label class="picker">
      <span class="sr">Model</span>
      <select value={wanted.value} onChange={(event) => (wanted.value = event.currentTarget.value)}>
        <option value="auto">Auto</option>
        {offered.value.map((one) => (
          <option key={one.id} value={one.id}>{labelOf(one)}</option>
        ))}
      </select>
    </label>
  );
}

function lengthProblem(text: string): string | null {
  const limits = account.value?.limits;
  const limit = limits?.messageBytes ?? FALLBACK_BYTES;
  if (text.length * 3 <= limit) return null; // no character takes more than three bytes a unit
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= limit) return null;
  const tokens = limits?.messageTokens === undefined ? "" : ` (${limits.messageTokens.toLocaleString()} tokens)`;
  return `This message is too long: ${kilobytes(bytes)} of at most ${kilobytes(limit)}${tokens}. Shorten it, or send it in parts.`;
}

function kilobytes(bytes: number): string {
  return `${(bytes / 1_000).toLocaleString(undefined, { maximumFractionDigits: 1 })} kB`;
}

function grow(area: HTMLTextAreaElement | null): void {
  if (area === null) return;
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
}
