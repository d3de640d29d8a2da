/** The whole page: sign-in, or the conversations and the operations. */
import { effect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { actionOf, type Action } from "../shortcuts";
import { announcement } from "../state/announce";
import { current } from "../state/chat";
import { conversations, refreshList } from "../state/conversations";
import { draftOf, setDraft } from "../state/drafts";
import { keepMarks } from "../state/marks";
import { loadModels } from "../state/models";
import { accountOpen, helpOpen, openAccount } from "../state/panels";
import { removeNow, undo } from "../state/removal";
import { drawerOpen, place, route } from "../state/route";
import { account, offline, refreshAccount } from "../state/session";
import { dismiss, toasts } from "../state/toasts";
import { ChatView } from "./chat";
import { removeConversation } from "./conversation-menu";
import { IconButton, Mark } from "./icons";
import { lazy } from "./lazy";
import { LinkGuard } from "./link-guard";
import { OfflineNotice } from "./offline";
import { Sidebar, startNewChat } from "./sidebar";
import { SignIn } from "./sign-in";

const REFETCH_GAP_MS = 2_000; // focus and visibility come together
const RUNNING_MS = 5_000; // how often the list is asked how answers go on that run elsewhere
const AccountPanel = lazy(() => import("./account").then((part) => part.AccountPanel));
const HelpSheet = lazy(() => import("./help").then((part) => part.HelpSheet));
const Operations = lazy(() => import("./operations").then((part) => part.Operations));
let owner: string | null = null;

export function App({ said }: { said: string | null }): JSX.Element {
  const me = account.value;
  return (
    <>
      {me === undefined ? <Opening /> : me === null ? (offline.value ? <Unreachable /> : <SignIn said={said} />) : <Rooms key={me.id} id={me.id} />}
      <div class="sr" role="status" aria-live="polite">{announcement.value}</div>
      <Toasts />
    </>
  );
}

function Rooms({ id }: { id: string }): JSX.Element {
  useEffect(() => {
    if (owner !== null && owner !== id) return location.reload(); // nothing of the person before may stay
    owner = id;
    takeQuery();
    let last = Date.now();
    void refreshList();
    void loadModels();
    const refetch = () => {
      if (document.hidden || Date.now() - last < REFETCH_GAP_MS) return;
      last = Date.now();
      void refreshList();
      void loadModels();
      void refreshAccount();
      void current.value.reading.newest();
    };
    const listen = new AbortController();
    addEventListener("focus", refetch, { signal: listen.signal });
    document.addEventListener("visibilitychange", refetch, { signal: listen.signal });
    addEventListener("keydown", onShortcut, { signal: listen.signal });
    addEventListener("pagehide", () => void removeNow(true), { signal: listen.signal });
    const stops = [keepMarks(id), watchRunning()];
    return () => {
      listen.abort();
      stops.forEach((stop) => stop());
    };
  }, [id]);
  return (
    <div class="rooms">
      <a class="skip" href="#chat" onClick={(event) => {
        event.preventDefault();
        toMessageBox();
      }}>{t("To the message box")}</a>
      <Sidebar />
      {place.value === "operations" ? <Operations /> : <ChatView />}
      <OfflineNotice />
      {accountOpen.value !== null && <AccountPanel />}
      {helpOpen.value && <HelpSheet />}
      <LinkGuard />
    </div>
  );
}

// While an answer runs that this tab does not follow, the list is asked again: its mark must go when it ends.
function watchRunning(): () => void {
  let timer: ReturnType<typeof setInterval> | undefined;
  const stop = effect(() => {
    const isRunning = conversations.value.some((one) => one.activeMessageId !== null);
    if (isRunning && timer === undefined) {
      timer = setInterval(() => {
        if (!document.hidden) void refreshList();
      }, RUNNING_MS);
    } else if (!isRunning) {
      clearInterval(timer);
      timer = undefined;
    }
  });
  return () => {
    stop();
    clearInterval(timer);
  };
}

// A popover, so that it is seen above a dialog too.
function Toasts(): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const items = toasts.value;
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    if (element.matches(":popover-open")) element.hidePopover();
    if (items.length > 0) element.showPopover();
  }, [items]);
  return (
    <div class="toasts" ref={box} popover="manual" role="region" aria-label={t("Notes")}>
      {items.map((one) => (
        <div key={one.id} class={one.bad ? "toast is-bad" : "toast"}>
          <p>{one.text}</p>
          {one.action !== undefined && <button type="button" class="link" onClick={one.action.run}>{one.action.label}</button>}
          <IconButton icon="close" label={t("Close this note")} onClick={() => dismiss(one.id)} />
        </div>
      ))}
    </div>
  );
}

function Opening(): JSX.Element {
  return <main class="opening" aria-busy="true"><Mark talking /><span class="sr">{t("Loading")}</span></main>;
}

function Unreachable(): JSX.Element {
  return (
    <main class="opening">
      <Mark />
      <h1>{t("The server cannot be reached")}</h1>
      <button type="button" class="button is-main" onClick={() => void refreshAccount()}>{t("Try again")}</button>
    </main>
  );
}

// `?q=` only fills the box in: another site must not be able to send in the person's name.
function takeQuery(): void {
  const text = new URLSearchParams(location.search).get("q");
  if (text === null) return;
  if (draftOf(route.value ?? "new") === "") setDraft(route.value ?? "new", text.slice(0, 4_000));
  history.replaceState(null, "", location.pathname + location.hash);
}

function onShortcut(event: KeyboardEvent): void {
  const target = event.target instanceof Element ? event.target : null;
  const isTyping = target?.closest("input, textarea, select, [contenteditable]") != null;
  if (event.key === "Escape" && !event.shiftKey && drawerOpen.value) drawerOpen.value = false;
  const action = actionOf(event, isTyping);
  if (action === null || (document.querySelector("dialog[open]") !== null && action !== "undo")) return;
  if (ACTIONS[action]() !== false) event.preventDefault();
}

const ACTIONS: Record<Action, () => boolean | void> = {
  search: () => {
    drawerOpen.value = true;
    toSearch(); // at once where it is seen: who types on loses no letter
    requestAnimationFrame(toSearch); // and when the drawer is drawn
  },
  new: startNewChat,
  box: toMessageBox,
  delete: () => {
    const here = conversations.value.find((one) => one.id === route.value);
    if (here === undefined) return false;
    removeConversation(here);
    return true;
  },
  undo: () => undo(),
  account: () => openAccount(),
  help: () => {
    helpOpen.value = true;
  },
};

function toSearch(): void {
  document.getElementById("search")?.focus();
}

function toMessageBox(): void {
  document.querySelector<HTMLTextAreaElement>(".composer-text")?.focus();
}
