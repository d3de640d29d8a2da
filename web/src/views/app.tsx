/** The whole page: sign-in, or the conversations. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { announcement } from "../state/announce";
import { current } from "../state/chat";
import { refreshList } from "../state/conversations";
import { draftOf, setDraft } from "../state/drafts";
import { loadModels } from "../state/models";
import { drawerOpen, route } from "../state/route";
import { account, offline, refreshAccount } from "../state/session";
import { dismiss, toasts } from "../state/toasts";
import { AccountPanel } from "./account";
import { ChatView } from "./chat";
import { IconButton, Mark } from "./icons";
import { LinkGuard } from "./link-guard";
import { Sidebar, startNewChat } from "./sidebar";
import { SignIn } from "./sign-in";

const REFETCH_GAP_MS = 2_000; // focus and visibility come together
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
      void current.value.load();
    };
    const listen = new AbortController();
    addEventListener("focus", refetch, { signal: listen.signal });
    document.addEventListener("visibilitychange", refetch, { signal: listen.signal });
    addEventListener("keydown", onShortcut, { signal: listen.signal });
    return () => listen.abort();
  }, [id]);
  return (
    <div class="rooms">
      <a class="skip" href="#chat" onClick={(event) => {
        event.preventDefault();
        document.querySelector<HTMLTextAreaElement>(".composer-text")?.focus();
      }}>To the message box</a>
      <Sidebar />
      <ChatView />
      <AccountPanel />
      <LinkGuard />
    </div>
  );
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
    <div class="toasts" ref={box} popover="manual">
      {items.map((one) => (
        <div key={one.id} class={one.bad ? "toast is-bad" : "toast"}>
          <p>{one.text}</p>
          <IconButton icon="close" label="Close this note" onClick={() => dismiss(one.id)} />
        </div>
      ))}
    </div>
  );
}

function Opening(): JSX.Element {
  return <main class="opening" aria-busy="true"><Mark talking /><span class="sr">Loading</span></main>;
}

function Unreachable(): JSX.Element {
  return (
    <main class="opening">
      <Mark />
      <h1>The server cannot be reached</h1>
      <button type="button" class="button is-main" onClick={() => void refreshAccount()}>Try again</button>
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
  const command = event.ctrlKey || event.metaKey;
  if (command && event.key.toLowerCase() === "k") {
    event.preventDefault();
    drawerOpen.value = true;
    requestAnimationFrame(() => document.getElementById("search")?.focus());
  } else if (command && event.shiftKey && event.key.toLowerCase() === "o") {
    event.preventDefault();
    startNewChat();
  } else if (event.key === "Escape" && drawerOpen.value) {
    drawerOpen.value = false;
  }
}
