/** The conversations at the side, and who is signed in. */
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { t } from "../i18n";
import { announce } from "../state/announce";
import { newChat } from "../state/chat";
import { archived, hasMore, listed, listState, query, searchFor, showArchived } from "../state/conversations";
import { helpOpen, openAccount } from "../state/panels";
import { drawerOpen, go, goToOperations, place } from "../state/route";
import { account, tightestBudget } from "../state/session";
import { budgetText, budgetTitle } from "../text/budget";
import { ConversationList } from "./conversation-list";
import { Icon, IconButton, Mark } from "./icons";
import { Meter } from "./meter";
import { ThemeButton } from "./theme";

const TYPING_PAUSE_MS = 250;

export function startNewChat(): void {
  newChat();
  go(null);
  document.querySelector<HTMLTextAreaElement>(".composer-text")?.focus();
}

export function Sidebar(): JSX.Element {
  const open = drawerOpen.value;
  return (
    <>
      {open && <div class="shade" onClick={() => (drawerOpen.value = false)} />}
      <nav class={open ? "sidebar is-open" : "sidebar"} aria-label={t("Conversations")}>
        <div class="brand">
          <Mark /><span>Tertulia</span>
          <ThemeButton />
          <IconButton icon="close" label={t("Hide conversations")} class="narrow-only" onClick={() => (drawerOpen.value = false)} />
        </div>
        <button type="button" class="new-chat" onClick={startNewChat} aria-keyshortcuts="Control+Shift+O Meta+Shift+O"><Icon name="plus" />{t("New chat")}</button>
        <Search />
        <ConversationList />
        <div class="side-foot">
          <ArchiveSwitch />
          {account.value?.role === "admin" && (
            <IconButton icon="gauge" label={t("Operations")} pressed={place.value === "operations"} onClick={goToOperations} />
          )}
          <IconButton icon="keys" label={t("Keyboard shortcuts")} class="wide-only" onClick={() => (helpOpen.value = true)} />
        </div>
        <Me />
      </nav>
    </>
  );
}

function Search(): JSX.Element {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const soon = (text: string) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void search(text.trim()), TYPING_PAUSE_MS);
  };
  return (
    <label class="search">
      <Icon name="search" />
      <span class="sr">{t("Search conversations")}</span>
      <input
        type="search"
        id="search"
        placeholder={t("Search")}
        maxLength={200}
        autocomplete="off"
        enterkeyhint="search"
        aria-keyshortcuts="Control+K Meta+K"
        onInput={(event) => soon(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") {
            event.preventDefault();
            document.querySelector<HTMLElement>(".list a")?.focus();
          }
          if (event.key !== "Escape" || event.currentTarget.value === "") return;
          event.stopPropagation(); // the first Escape empties the box, the next one closes what is around it
          event.currentTarget.value = "";
          soon("");
        }}
      />
    </label>
  );
}

async function search(text: string): Promise<void> {
  await searchFor(text);
  if (text !== "" && query.value === text && listState.value === "ready") announce(countText(listed.value.length, hasMore.value));
}

function countText(count: number, more: boolean): string {
  if (more) return t("{count} conversations found, and there are more", { count });
  return count === 1 ? t("One conversation found") : t("{count} conversations found", { count });
}

function ArchiveSwitch(): JSX.Element {
  const shown = archived.value;
  return (
    <button type="button" class="archive-switch" onClick={() => void showArchived(!shown)} aria-pressed={shown}>
      <Icon name={shown ? "left" : "box"} />{shown ? t("Back to your chats") : t("Archive")}
    </button>
  );
}

function Me(): JSX.Element | null {
  const me = account.value;
  if (!me) return null;
  const budget = tightestBudget.value;
  return (
    <button type="button" class="me" onClick={() => openAccount()} aria-haspopup="dialog">
      <span class="avatar" aria-hidden="true">{me.name.charAt(0).toUpperCase()}</span>
      <span class="me-text">
        <span class="me-name"><span dir="auto">{me.name}</span><span class="plan">{me.plan}</span></span>
        {budget !== null && (
          <>
            <Meter budget={budget} />
            <span class="hint" title={budgetTitle(budget.name)}>{budgetText(budget)}</span>
          </>
        )}
      </span>
    </button>
  );
}
