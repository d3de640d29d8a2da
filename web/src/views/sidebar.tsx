/** The conversations at the side, and who is signed in. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { newChat } from "../state/chat";
import { conversations, hasMore, listState, loadMoreConversations, query, refreshList, searchFor } from "../state/conversations";
import { addressOf, drawerOpen, go, route } from "../state/route";
import { account, tightestBudget } from "../state/session";
import type { Conversation } from "../wire";
import { accountOpen } from "./account";
import { budgetText, budgetTitle } from "../text/budget";
import { ConversationMenu } from "./conversation-menu";
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
      <nav class={open ? "sidebar is-open" : "sidebar"} aria-label="Conversations">
        <div class="brand">
          <Mark /><span>Tertulia</span>
          <ThemeButton />
          <IconButton icon="close" label="Hide conversations" class="narrow-only" onClick={() => (drawerOpen.value = false)} />
        </div>
        <button type="button" class="new-chat" onClick={startNewChat} aria-keyshortcuts="Control+Shift+O"><Icon name="plus" />New chat</button>
        <Search />
        <List />
        <Me />
      </nav>
    </>
  );
}

function Search(): JSX.Element {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  return (
    <label class="search">
      <Icon name="search" />
      <span class="sr">Search conversations</span>
      <input
        type="search"
        id="search"
        placeholder="Search"
        aria-keyshortcuts="Control+K"
        onInput={(event) => {
          const text = event.currentTarget.value.trim();
          clearTimeout(timer.current);
          timer.current = setTimeout(() => void searchFor(text), TYPING_PAUSE_MS);
        }}
      />
    </label>
  );
}

function List(): JSX.Element {
  const items = conversations.value;
  const pinned = items.filter((one) => one.pinned);
  const rest = items.filter((one) => !one.pinned);
  return (
    <div class="list" tabindex={-1}>
      {pinned.length > 0 && <Group name="Pinned" items={pinned} />}
      {byAge(rest).map(([name, group]) => <Group key={name} name={name} items={group} />)}
      {listState.value === "failed" && (
        <p class="list-note">The list could not be loaded. <button type="button" class="link" onClick={() => void refreshList()}>Try again</button></p>
      )}
      {listState.value === "ready" && items.length === 0 && (
        <p class="list-note">{query.value === "" ? "Your conversations will be here." : "Nothing found."}</p>
      )}
      {hasMore.value !== null && <More />}
    </div>
  );
}

function Group({ name, items }: { name: string; items: Conversation[] }): JSX.Element {
  return (
    <section>
      <h2>{name}</h2>
      <ul>{items.map((one) => <Entry key={one.id} conversation={one} />)}</ul>
    </section>
  );
}

function Entry({ conversation }: { conversation: Conversation }): JSX.Element {
  const here = route.value === conversation.id;
  return (
    <li class={here ? "entry is-here" : "entry"}>
      <a href={addressOf(conversation.id)} aria-current={here ? "page" : undefined} dir="auto" onClick={(event) => open(event, conversation.id)}>
        {conversation.activeMessageId !== null && <span class="running" role="img" aria-label="Answering" />}
        <span class="entry-title">{conversation.title || "New chat"}</span>
      </a>
      <ConversationMenu conversation={conversation} />
    </li>
  );
}

// With a key held or another button the browser opens its own tab or window.
function open(event: MouseEvent, id: string): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
  event.preventDefault();
  go(id);
}

function More(): JSX.Element {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (button.current === null) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) void loadMoreConversations();
    });
    watch.observe(button.current);
    return () => watch.disconnect();
  }, [hasMore.value]);
  return <button ref={button} type="button" class="link list-note" onClick={() => void loadMoreConversations()}>Show more</button>;
}

function Me(): JSX.Element | null {
  const me = account.value;
  if (!me) return null;
  const budget = tightestBudget.value;
  return (
    <button type="button" class="me" onClick={() => (accountOpen.value = true)} aria-haspopup="dialog">
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

function byAge(items: Conversation[]): [string, Conversation[]][] {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const day = 86_400_000;
  const groups: [string, number][] = [["Today", midnight], ["Yesterday", midnight - day], ["Last seven days", midnight - 7 * day], ["Older", -Infinity]];
  const sorted = new Map<string, Conversation[]>();
  for (const one of items) {
    const at = Date.parse(one.updatedAt);
    const name = groups.find(([, from]) => at >= from)?.[0] ?? "Older";
    sorted.set(name, [...(sorted.get(name) ?? []), one]);
  }
  return groups.flatMap(([name]) => (sorted.has(name) ? [[name, sorted.get(name)!] as [string, Conversation[]]] : []));
}
