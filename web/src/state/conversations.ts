/** The list at the side: newest first, page by page, with search. Titles only, never messages. */
import { signal } from "@preact/signals";
import { call, sentenceOf } from "../api";
import type { Conversation, ConversationPage } from "../wire";
import { toast } from "./toasts";

const PAGE = 40;

export const conversations = signal<Conversation[]>([]);
export const query = signal("");
export const listState = signal<"loading" | "ready" | "failed">("loading");
const cursor = signal<string | null>(null);
export const hasMore = cursor;

let asked = 0; // only the newest question may fill the list

/** Fetches the first page again; what is shown stays until the answer is here. */
export async function refreshList(): Promise<void> {
  const mine = ++asked;
  try {
    const page = await call<ConversationPage>("GET", `/v1/conversations?${search(null)}`);
    if (mine !== asked) return;
    const older = query.value === "" ? conversations.value.filter((one) => isOlder(one, page)) : [];
    conversations.value = unique([...page.items, ...older]);
    if (older.length === 0) cursor.value = page.nextCursor; // else the pages below are still held
    listState.value = "ready";
  } catch {
    if (mine === asked && listState.value === "loading") listState.value = "failed";
  }
}

export async function loadMoreConversations(): Promise<void> {
  const mine = asked;
  if (cursor.value === null) return;
  try {
    const page = await call<ConversationPage>("GET", `/v1/conversations?${search(cursor.value)}`);
    if (mine !== asked) return;
    conversations.value = unique([...conversations.value, ...page.items]);
    cursor.value = page.nextCursor;
  } catch (error) {
    toast(sentenceOf(error), "bad");
  }
}

export async function searchFor(text: string): Promise<void> {
  query.value = text;
  cursor.value = null;
  await refreshList();
}

export function put(conversation: Conversation): void {
  const known = conversations.value.some((one) => one.id === conversation.id);
  conversations.value = known
    ? conversations.value.map((one) => (one.id === conversation.id ? { ...one, ...conversation } : one))
    : [conversation, ...conversations.value];
}

export async function change(id: string, fields: { title?: string; pinned?: boolean }): Promise<void> {
  try {
    put(await call<Conversation>("PATCH", `/v1/conversations/${id}`, fields));
    if (fields.pinned !== undefined) await refreshList();
  } catch (error) {
    toast(sentenceOf(error), "bad");
  }
}

export async function remove(id: string): Promise<boolean> {
  try {
    await call("DELETE", `/v1/conversations/${id}`);
    conversations.value = conversations.value.filter((one) => one.id !== id);
    toast("Conversation deleted.");
    return true;
  } catch (error) {
    toast(sentenceOf(error), "bad");
    return false;
  }
}

function search(from: string | null): URLSearchParams {
  const params = new URLSearchParams({ limit: String(PAGE) });
  if (query.value !== "") params.set("q", query.value);
  if (from !== null) params.set("cursor", from);
  return params;
}

function isOlder(one: Conversation, page: ConversationPage): boolean {
  const last = page.items[page.items.length - 1];
  return page.nextCursor !== null && last !== undefined && one.updatedAt < last.updatedAt;
}

function unique(items: Conversation[]): Conversation[] {
  return [...new Map(items.map((one) => [one.id, one])).values()];
}
