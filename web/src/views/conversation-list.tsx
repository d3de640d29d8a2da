/** The list of conversations. Of thousands only those in the window are elements of the page. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import { offsetsOf, rowsOf, windowOf, type Entry, type Heights, type Row } from "../list/rows";
import { archived, hasMore, listed, listState, loadMoreConversations, query, refreshList } from "../state/conversations";
import { marks } from "../state/marks";
import { addressOf, go, route } from "../state/route";
import { ConversationMenu } from "./conversation-menu";

const MORE_ROWS = 8; // above and below the window, so that a flick finds them drawn
const AHEAD_ROWS = 40; // the next page is asked for before its place is reached

export function ConversationList(): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 0 });
  const [focused, setFocused] = useState<string | null>(null);
  const wanted = useRef<string | null>(null);
  const items = listed.value;
  const midnight = new Date().setHours(0, 0, 0, 0);
  const rows = useMemo(() => rowsOf(items, heights(), midnight), [items, midnight]);
  const offsets = useMemo(() => offsetsOf(rows), [rows]);
  const { first, last } = windowOf(offsets, view.top, view.height, MORE_ROWS);

  const look = () => {
    const element = box.current;
    if (element === null) return;
    const next = windowOf(offsets, element.scrollTop, element.clientHeight, MORE_ROWS);
    if (next.first === first && next.last === last && view.height === element.clientHeight) return;
    setView({ top: element.scrollTop, height: element.clientHeight });
  };
  useLayoutEffect(look);
  useEffect(() => {
    const watch = new ResizeObserver(look);
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (last > rows.length - AHEAD_ROWS && hasMore.value && listState.value === "ready") void loadMoreConversations();
  }, [last, rows.length, hasMore.value, listState.value]);
  useEffect(() => {
    if (wanted.current === null) return;
    const link = box.current?.querySelector<HTMLElement>(`[data-id="${CSS.escape(wanted.current)}"]`);
    if (link === undefined || link === null) return;
    wanted.current = null;
    link.focus({ preventScroll: true });
  });

  const walk = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || focused === null || !(event.target as Element).matches("a")) return;
    const entries = rows.filter((row): row is Entry => row.kind === "entry");
    const at = entries.findIndex((row) => row.key === focused);
    const next = entries[Math.max(0, Math.min(entries.length - 1, at + step))];
    if (next === undefined || box.current === null) return;
    event.preventDefault();
    wanted.current = next.key;
    intoView(box.current, offsets[rows.indexOf(next)]!, next.height);
    setFocused(next.key);
  };

  return (
    <div class="list" ref={box} tabindex={-1} onScroll={look} onKeyDown={walk}
      onFocusIn={(event) => setFocused((event.target as HTMLElement).dataset["id"] ?? null)}>
      {rows.length > 0 && (
        <div class="list-rows" style={{ height: `${offsets[rows.length]}px` }}>
          {groups(rows, offsets, first, last, focused).map((group) => (
            <section key={`${group.name} ${group.entries[0]?.entry.key}`} aria-label={t(group.name)}>
              {group.top !== null && <h2 style={{ top: `${group.top}px` }}>{t(group.name)}</h2>}
              <ul role="list">
                {group.entries.map(({ entry, top }) => <EntryView key={entry.key} entry={entry} top={top} total={items.length} />)}
              </ul>
            </section>
          ))}
        </div>
      )}
      <Note isEmpty={rows.length === 0} />
    </div>
  );
}

function EntryView({ entry, top, total }: { entry: Entry; top: number; total: number }): JSX.Element {
  const { conversation } = entry;
  const here = route.value === conversation.id;
  const isUnread = !here && marks.value.unread.includes(conversation.id);
  const { snippet } = conversation;
  return (
    <li class={`entry${here ? " is-here" : ""}${isUnread ? " is-unread" : ""}`} aria-posinset={entry.place} aria-setsize={hasMore.value ? -1 : total}
      style={{ top: `${top}px`, height: `${entry.height}px` }}>
      <a href={addressOf(conversation.id)} data-id={conversation.id} aria-current={here ? "page" : undefined}
        onClick={(event) => open(event, conversation.id)}>
        {conversation.activeMessageId !== null && <span class="running" role="img" aria-label={t("Answering")} />}
        {isUnread && <span class="unread" role="img" aria-label={t("New answer")} />}
        <span class="entry-text">
          <span class="entry-title" dir="auto">{conversation.title || t("New chat")}</span>
          {snippet !== undefined && (
            <span class="entry-snippet" dir="auto">{snippet.before}<mark>{snippet.match}</mark>{snippet.after}</span>
          )}
        </span>
      </a>
      <ConversationMenu conversation={conversation} />
    </li>
  );
}

function Note({ isEmpty }: { isEmpty: boolean }): JSX.Element | null {
  if (listState.value === "failed") {
    return (
      <p class="list-note">
        {t("The list could not be loaded.")} <button type="button" class="link" onClick={() => void refreshList()}>{t("Try again")}</button>
      </p>
    );
  }
  if (!isEmpty || listState.value !== "ready") return null;
  if (query.value !== "") {
    return (
      <div class="list-note">
        <p>{t("Nothing found for “{text}”.", { text: query.value })}</p>
        <p>{t("The search looks for exactly these letters in titles and messages. Try a part of a word.")}</p>
      </div>
    );
  }
  if (archived.value) return <p class="list-note">{t("Nothing is archived. Archive a chat from its menu to put it out of the way and keep it.")}</p>;
  return (
    <div class="list-note">
      <p>{t("Your conversations will be here.")}</p>
      <p>{t("Write a message to begin one. Later you can pin, rename, search, share and archive it.")}</p>
    </div>
  );
}

interface Group {
  name: string;
  top: number | null; // of its heading, if that is in the window
  entries: { entry: Entry; top: number }[];
}

// What is in the window, and where the keyboard is: an element that is taken away loses the focus.
function groups(rows: readonly Row[], offsets: readonly number[], first: number, last: number, focused: string | null): Group[] {
  const kept = focused === null ? -1 : rows.findIndex((row) => row.key === focused);
  const drawn = Array.from({ length: last - first }, (_, n) => first + n);
  if (kept >= 0 && kept < first) drawn.unshift(kept);
  if (kept >= last) drawn.push(kept);
  const found: Group[] = [];
  for (const at of drawn) {
    const row = rows[at]!;
    if (found.at(-1)?.name !== row.group) found.push({ name: row.group, top: null, entries: [] });
    const group = found.at(-1)!;
    if (row.kind === "heading") group.top = offsets[at]!;
    else group.entries.push({ entry: row, top: offsets[at]! });
  }
  return found;
}

// As large as fingers need, and as the person has set the size of letters.
function heights(): Heights {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
  const entry = matchMedia("(pointer: coarse)").matches ? 2.75 : 2.35;
  return { heading: Math.round(2.4 * rem), entry: Math.round(entry * rem), found: Math.round(3.9 * rem) };
}

function intoView(box: HTMLElement, top: number, height: number): void {
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + 2 * height > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * height - box.clientHeight;
}

// With a key held or another button the browser opens its own tab or window.
function open(event: MouseEvent, id: string): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0) return;
  event.preventDefault();
  go(id);
}
