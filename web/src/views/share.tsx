/** The links of one conversation: make one, copy it while it can be seen, take any of them back. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, sentenceOf } from "../api";
import { moment, t } from "../i18n";
import { current } from "../state/chat";
import type { Conversation, NewShare, Share } from "../wire";
import { Dialog } from "./dialog";
import { IconButton } from "./icons";
import { CopyButton } from "./message";

export function ShareDialog({ conversation, close }: { conversation: Conversation; close: () => void }): JSX.Element {
  const [links, setLinks] = useState<Share[]>([]);
  const [made, setMade] = useState<NewShare | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const path = `/v1/conversations/${conversation.id}/shares`;
  const trying = async (what: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await what();
    } catch (reason) {
      setError(sentenceOf(reason));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => void trying(async () => setLinks((await call<{ items: Share[] }>("GET", path)).items)), [path]);
  const make = () => trying(async () => {
    const share = await call<NewShare>("POST", path, { ...leafOf(conversation) });
    setMade(share);
    setLinks((before) => [share, ...before]);
  });
  const revoke = (share: Share) => trying(async () => {
    await call("DELETE", `/v1/shares/${share.id}`);
    setLinks((before) => before.filter((one) => one.id !== share.id));
    if (made?.id === share.id) setMade(null);
  });
  return (
    <Dialog title={t("Share this conversation")} close={close}>
      <p>{t("Whoever has the link can read the messages that are on your screen now, without an account. Your name and what you write later are not shown.")}</p>
      {error !== null && <p class="form-error" role="alert">{error}</p>}
      {made !== null && (
        <div class="row">
          <input class="link-box" readOnly aria-label={t("The link")} dir="ltr" value={location.origin + made.url} onFocus={(event) => event.currentTarget.select()} />
          <CopyButton text={location.origin + made.url} />
        </div>
      )}
      {made !== null && <p class="hint">{t("Copy it now: it is not shown again.")}</p>}
      {links.length > 0 && (
        <ul class="keys" aria-label={t("Links to this conversation")}>
          {links.map((share) => (
            <li key={share.id}>
              <span>{madeText(share)}</span>
              <IconButton icon="trash" label={t("Take this link back")} disabled={busy} onClick={() => void revoke(share)} />
            </li>
          ))}
        </ul>
      )}
      <div class="row">
        <button type="button" class="button" onClick={close}>{t("Close")}</button>
        <button type="button" class="button is-main" disabled={busy} onClick={() => void make()}>{t("Make a link")}</button>
      </div>
    </Dialog>
  );
}

/** The branch on screen ends here; of a conversation that is not on screen the newest is meant. */
function leafOf(conversation: Conversation): { leafId?: string } {
  const chat = current.value;
  if (chat.id.value !== conversation.id) return {};
  const last = chat.path.value.filter((message) => !message.id.startsWith("local_")).at(-1);
  return last === undefined ? {} : { leafId: last.id };
}

function madeText(share: Share): string {
  const time = moment(share.createdAt);
  return share.messages === 1 ? t("One message, made {time}", { time }) : t("{count} messages, made {time}", { count: share.messages, time });
}
