/** Pin, rename, share, archive and delete one conversation. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, Refused } from "../api";
import { t } from "../i18n";
import { forget } from "../state/chat";
import { change, put, take } from "../state/conversations";
import { removeSoon, undo, UNDO_MS } from "../state/removal";
import { go, route } from "../state/route";
import { dismiss, toast } from "../state/toasts";
import type { Conversation } from "../wire";
import { Dialog } from "./dialog";
import { Menu } from "./menu";
import { isComposing } from "./message";
import { ShareDialog } from "./share";

export function ConversationMenu({ conversation }: { conversation: Conversation }): JSX.Element {
  const [asking, setAsking] = useState<"rename" | "share" | null>(null);
  const { id, pinned, archived } = conversation;
  return (
    <Menu
      label={t("Options of {title}", { title: conversation.title || t("this chat") })}
      items={[
        { icon: "pin", label: pinned ? t("Unpin") : t("Pin"), run: () => void change(id, { pinned: !pinned }) },
        { icon: "edit", label: t("Rename"), run: () => setAsking("rename") },
        { icon: "link", label: t("Share"), run: () => setAsking("share") },
        { icon: "box", label: archived ? t("Take out of the archive") : t("Archive"), run: () => void putAway(conversation) },
        { icon: "trash", label: t("Delete"), run: () => removeConversation(conversation), isDanger: true },
      ]}
    >
      {asking === "rename" && <Rename conversation={conversation} close={() => setAsking(null)} />}
      {asking === "share" && <ShareDialog conversation={conversation} close={() => setAsking(null)} />}
    </Menu>
  );
}

function Rename({ conversation, close }: { conversation: Conversation; close: () => void }): JSX.Element {
  const [title, setTitle] = useState(conversation.title ?? "");
  const save = () => {
    if (title.trim() !== "") void change(conversation.id, { title: title.trim() });
    close();
  };
  return (
    <Dialog title={t("Rename")} close={close}>
      <label class="field">
        <span>{t("Title")}</span>
        <input
          value={title}
          maxLength={200}
          dir="auto"
          autofocus
          onFocus={(event) => event.currentTarget.select()}
          onInput={(event) => setTitle(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !isComposing(event)) save();
          }}
        />
      </label>
      <div class="row">
        <button type="button" class="button" onClick={close}>{t("Cancel")}</button>
        <button type="button" class="button is-main" disabled={title.trim() === ""} onClick={save}>{t("Save")}</button>
      </div>
    </Dialog>
  );
}

async function putAway(conversation: Conversation): Promise<void> {
  const { id, archived } = conversation;
  if (!(await change(id, { archived: !archived }))) return;
  const said = archived ? t("It is among your chats again.") : t("Archived. It can still be found and read.");
  const note = toast(said, "good", {
    label: t("Undo"),
    run: () => {
      dismiss(note);
      void change(id, { archived });
    },
  });
}

/** Gone from the screen at once, from the store when nobody has undone it for a while. */
export function removeConversation(conversation: Conversation): void {
  const { id } = conversation;
  const wasHere = route.value === id;
  const note = toast(t("Deleted: {title}", { title: conversation.title || t("New chat") }), "good", {
    label: t("Undo"),
    run: () => undo(id),
  }, UNDO_MS);
  removeSoon({
    id,
    remove: async (isLast) => {
      await erase(id, isLast);
      take(id);
      forget(id);
    },
    restore: () => {
      dismiss(note);
      put(conversation);
      if (wasHere && route.value === null) go(id);
    },
  });
  if (wasHere) go(null);
}

async function erase(id: string, isLast: boolean): Promise<void> {
  try {
    await call("DELETE", `/v1/conversations/${id}`, undefined, { keepalive: isLast });
  } catch (error) {
    if (error instanceof Refused && error.problem.status === 404) return; // it is gone already
    toast(t("The conversation could not be deleted, and is still there."), "bad");
    throw error;
  }
}
