/** Messages that wait for the end of an answer, in the order in which they will be sent. */
import type { JSX } from "preact";
import { t } from "../i18n";
import type { Chat } from "../state/chat";
import { draftOf, setDraft } from "../state/drafts";
import type { Waiting } from "../state/waiting";
import { IconButton } from "./icons";

export function WaitingLine({ chat }: { chat: Chat }): JSX.Element | null {
  const items = chat.waiting.value;
  if (items.length === 0) return null;
  const isHeld = chat.line.held.value && chat.running.value === null;
  return (
    <section class="waiting-line" aria-label={t("Not sent yet")}>
      {items.map((one) => <Item key={one.key} chat={chat} one={one} />)}
      <div class="row">
        <p class="hint">{isHeld ? t("Not sent yet.") : t("Sent when the answer has ended.")}</p>
        {isHeld && <button type="button" class="button" onClick={() => chat.sendWaiting()}>{t("Send now")}</button>}
      </div>
    </section>
  );
}

function Item({ chat, one }: { chat: Chat; one: Waiting }): JSX.Element {
  const change = () => {
    chat.line.remove(one.key);
    const typed = draftOf(chat.draftPlace);
    setDraft(chat.draftPlace, typed === "" ? one.content : `${one.content}\n\n${typed}`);
    document.querySelector<HTMLTextAreaElement>(".composer-text")?.focus();
  };
  return (
    <div class="waiting-item">
      <div class="bubble" dir="auto">{one.content}</div>
      <IconButton icon="edit" label={t("Change this message")} onClick={change} />
      <IconButton icon="close" label={t("Do not send this message")} onClick={() => chat.line.remove(one.key)} />
    </div>
  );
}
