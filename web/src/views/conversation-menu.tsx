/** Rename, pin, share and delete one conversation. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { forget } from "../state/chat";
import { change, remove } from "../state/conversations";
import { go, route } from "../state/route";
import type { Conversation } from "../wire";
import { Dialog } from "./dialog";
import { Icon } from "./icons";
import { isComposing } from "./message";
import { ShareDialog } from "./share";

export function ConversationMenu({ conversation }: { conversation: Conversation }): JSX.Element {
  const [open, setOpen] = useState(false);
  const [asking, setAsking] = useState<"rename" | "share" | "delete" | null>(null);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>(".menu button")?.focus();
    const away = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const pick = (what: () => void) => () => {
    setOpen(false);
    what();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const items = [...(root.current?.querySelectorAll<HTMLElement>(".menu button") ?? [])];
    const next = items.indexOf(document.activeElement as HTMLElement) + (event.key === "ArrowDown" ? 1 : -1);
    items[(next + items.length) % items.length]?.focus();
    event.preventDefault();
  };
  return (
    <div class={open || asking !== null ? "menu-root is-open" : "menu-root"} ref={root} onKeyDown={onKeyDown}>
      <button type="button" class="icon-button" aria-label={`Options of ${conversation.title || "this chat"}`} aria-haspopup="menu"
        aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="more" />
      </button>
      {open && (
        <div class="menu" role="menu">
          <button type="button" role="menuitem" onClick={pick(() => void change(conversation.id, { pinned: !conversation.pinned }))}>
            <Icon name="pin" />{conversation.pinned ? "Unpin" : "Pin"}
          </button>
          <button type="button" role="menuitem" onClick={pick(() => setAsking("rename"))}><Icon name="edit" />Rename</button>
          <button type="button" role="menuitem" onClick={pick(() => setAsking("share"))}><Icon name="link" />Share</button>
          <button type="button" role="menuitem" class="is-danger" onClick={pick(() => setAsking("delete"))}><Icon name="trash" />Delete</button>
        </div>
      )}
      {asking === "rename" && <Rename conversation={conversation} close={() => setAsking(null)} />}
      {asking === "share" && <ShareDialog conversation={conversation} close={() => setAsking(null)} />}
      {asking === "delete" && <Delete conversation={conversation} close={() => setAsking(null)} />}
    </div>
  );
}

function Rename({ conversation, close }: { conversation: Conversation; close: () => void }): JSX.Element {
  const [title, setTitle] = useState(conversation.title ?? "");
  const save = () => {
    if (title.trim() !== "") void change(conversation.id, { title: title.trim() });
    close();
  };
  return (
    <Dialog title="Rename" close={close}>
      <label class="field">
        <span>Title</span>
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
        <button type="button" class="button" onClick={close}>Cancel</button>
        <button type="button" class="button is-main" disabled={title.trim() === ""} onClick={save}>Save</button>
      </div>
    </Dialog>
  );
}

function Delete({ conversation, close }: { conversation: Conversation; close: () => void }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    const gone = await remove(conversation.id);
    close();
    if (!gone) return;
    forget(conversation.id);
    if (route.value === conversation.id) go(null);
  };
  return (
    <Dialog title="Delete this conversation?" close={close}>
      <p><strong dir="auto">{conversation.title || "Untitled chat"}</strong> and all its messages are deleted for good.</p>
      <div class="row">
        <button type="button" class="button" onClick={close}>Keep it</button>
        <button type="button" class="button is-danger" disabled={busy} onClick={() => void confirm()}>Delete</button>
      </div>
    </Dialog>
  );
}
