/** The list at the side: newest first, page by page, with search. Titles and snippets, never whole messages. */
import { batch, computed, signal } from "@preact/signals";
import { call, sentenceOf } from "../api";
import { before, renewed } from "../list/rows";
import type { Conversation, ConversationPage } from "../wire";
import { leaving } from "./removal";
import { route } from "./route";
import { toast } from "./toasts";

const FIRST_PAGE = 40;
const NEXT_PAGE = 100;
// A search looks through a part of the list at a time and may find little in it: so many parts in a row.
const MOST_PARTS = 10;
const MOST_OTHERS = 50;

const held = signal<Conversation[]>([]);
const others = signal<Conversation[]>([]); // opened, and not in the list: of another page, archived, not found
/** All that are known, in the list or not. */
export const conversations = computed(() => [...held.value, ...others.value]);
export const query = signal("");
export const archived = signal(false);
export const listState = signal<"loading" | "ready" | "failed">("loading");
const cursor = signal<string | null>(null);
export const hasMore = computed(() => cursor.value !== null);
/** What the list shows: without those that are about to be deleted. */
export const listed = computed(() =>
  leaving.value.size === 0 ? held.value : held.value.filter((one) => !leaving.value.has(one.id)));

let asked = 0; // only the newest question may fill the list
let isLoadingMore = false;

/** Fetches the first page again; what is shown stays until the answer is here. */
export async function refreshList(): Promise<void> {
  const mine = ++asked;
  try {
    const page = await fetchPage(null, FIRST_PAGE);
    if (mine !== asked) return;
    const isWhole = page.nextCursor === null || query.value !== "";
    const next = renewed(held.value, page.items, isWhole);
    if (next.length === page.items.length) cursor.value = page.nextCursor; // else the pages below are still held
    hold(next);
    listState.value = "ready";
    isLoadingMore = false;
    await fillUp(mine);
  } catch {
    if (mine === asked && listState.value === "loading") listState.value = "failed";
  }
}

export async function loadMoreConversations(): Promise<void> {
  const mine = asked;
  if (cursor.value === null || isLoadingMore) return;
  isLoadingMore = true;
  try {
    await append(mine);
    await fillUp(mine);
  } catch (error) {
    if (mine === asked) toast(sentenceOf(error), "bad");
  } finally {
    if (mine === asked) isLoadingMore = false;
  }
}

export async function searchFor(text: string): Promise<void> {
  if (text === query.value) return;
  query.value = text;
  await startOver();
}

/** The archived ones, or those that are not. */
export async function showArchived(wanted: boolean): Promise<void> {
  archived.value = wanted;
  await startOver();
}

export function put(conversation: Conversation): void {
  const list = [held, others].find((one) => one.value.some(({ id }) => id === conversation.id));
  if (list !== undefined) {
    list.value = list.value.map((one) => (one.id === conversation.id ? { ...one, ...conversation } : one));
    return;
  }
  const items = held.value;
  const at = items.findIndex((one) => before(conversation, one));
  const isListed = query.value === "" && conversation.archived === archived.value && listState.value === "ready";
  if (isListed && at >= 0) held.value = [...items.slice(0, at), conversation, ...items.slice(at)];
  else if (isListed && cursor.value === null) held.value = [...items, conversation];
  else others.value = [...others.value, conversation].slice(-MOST_OTHERS);
}

export function take(id: string): void {
  held.value = held.value.filter((one) => one.id !== id);
  others.value = others.value.filter((one) => one.id !== id);
}

export async function change(id: string, fields: { title?: string; pinned?: boolean; archived?: boolean }): Promise<boolean> {
  try {
    const changed = await call<Conversation>("PATCH", `/v1/conversations/${id}`, fields);
    if (fields.archived !== undefined) take(id); // and to where it belongs now
    put(changed);
    if (fields.pinned !== undefined) await refreshList();
    return true;
  } catch (error) {
    toast(sentenceOf(error), "bad");
    return false;
  }
}

async function startOver(): Promise<void> {
  keepOthers(held.value);
  held.value = [];
  cursor.value = null;
  listState.value = "loading";
  await refreshList();
}

async function append(mine: number): Promise<void> {
  const page = await fetchPage(cursor.value, NEXT_PAGE);
  if (mine !== asked) return;
  const ids = new Set(held.value.map((one) => one.id));
  hold([...held.value, ...page.items.filter((one) => !ids.has(one.id))]);
  cursor.value = page.nextCursor;
}

function hold(items: Conversation[]): void {
  const ids = new Set(items.map((one) => one.id));
  batch(() => {
    held.value = items;
    if (others.value.some((one) => ids.has(one.id))) others.value = others.value.filter((one) => !ids.has(one.id));
  });
}

// The one on screen has its title from here, whatever the list shows.
function keepOthers(items: readonly Conversation[]): void {
  const open = items.find((one) => one.id === route.value);
  if (open !== undefined) others.value = [...others.value, open].slice(-MOST_OTHERS);
}

// Until a search shows a window full, or there is no more of the list.
async function fillUp(mine: number): Promise<void> {
  for (let part = 0; part < MOST_PARTS && query.value !== ""; part++) {
    if (mine !== asked || cursor.value === null || held.value.length >= FIRST_PAGE) return;
    await append(mine);
  }
}

async function fetchPage(from: string | null, limit: number): Promise<ConversationPage> {
  const params = new URLSearchParams({ limit: String(limit) });
  if (query.value !== "") params.set("q", query.value);
  if (archived.value) params.set("archived", "true");
  if (from !== null) params.set("cursor", from);
  return await call<ConversationPage>("GET", `/v1/conversations?${params}`);
}
