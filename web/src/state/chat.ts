/** The conversation on screen, and those that go on behind it. */
import { batch, computed, effect, signal } from "@preact/signals";
import { conversations, put, refreshList } from "./conversations";
import { draftOf, setDraft } from "./drafts";
import type { LiveReply } from "./live";
import { named, route } from "./route";
import { Chat, type House } from "./talk";
import { isOfLines } from "./waiting";
import { tellOtherTabs, whenAnotherTabTells } from "./world";

export type { Shown } from "../chat/shown";
export type { Chat } from "./talk";

const MOST_CHATS = 30; // kept whole in memory; older ones are fetched again
const MOST_STREAMS = 4; // a browser opens six connections to one HTTP/1.1 server
const TITLE_MS = 4_000; // the title is made beside the chat, a moment after the first answer

const chats = new Map<string, Chat>();

const house: House = {
  made: (chat, conversation) => {
    const isOnScreen = current.value === chat;
    batch(() => {
      chats.set(conversation.id, chat);
      put(conversation);
      if (isOnScreen) moveDraft(conversation.id);
      if (isOnScreen) named(conversation.id);
      if (fresh.value === chat) fresh.value = new Chat(null, house);
    });
  },
  began: (_, live) => boundStreams(live),
  isRunning: (chat, messageId) => {
    const known = conversations.value.find((one) => one.id === chat.id.value);
    if (known !== undefined && known.activeMessageId !== messageId) put({ ...known, activeMessageId: messageId });
  },
  asked: (chat) => {
    if (chat.id.value !== null) tellOtherTabs(chat.id.value);
    if (isNew(chat)) void refreshList(); // the first words have given it a title
  },
  ended: (chat) => {
    if (chat.temporary) return;
    void refreshList();
    if (isNew(chat)) setTimeout(() => void refreshList(), TITLE_MS);
  },
  giveBack: (chat, content) => {
    if (draftOf(chat.draftPlace) !== "") return false;
    setDraft(chat.draftPlace, content);
    return true;
  },
};

const fresh = signal(new Chat(null, house));

/** The conversation on screen. */
export const current = computed<Chat>(() => {
  const id = route.value;
  return id === null ? fresh.value : chatOf(id);
});

export function newChat(): void {
  if (fresh.value.path.value.length > 0 || fresh.value.temporary) leaveFresh(new Chat(null, house));
}

/** A new chat that is not kept, or back to one that is. */
export function switchTemporary(): void {
  leaveFresh(new Chat(null, house, !fresh.value.temporary));
}

export function forget(id: string): void {
  chats.get(id)?.liveReplies.forEach((live) => live.leave());
  chats.delete(id);
}

// An answer that nobody follows is stopped after a while: also those of conversations that are not on screen,
// as after a reload, are followed. Each is tried once.
const tried = new Set<string>();
let coming = 0; // those that are being fetched, which may open a stream
effect(() => {
  for (const { id, activeMessageId: reply } of conversations.value) {
    if (reply === null || tried.has(reply) || id === route.peek()) continue;
    tried.add(reply);
    queueMicrotask(() => {
      const chat = chatOf(id);
      if (chat.liveReplies.length > 0 || streams().length + coming >= MOST_STREAMS - 1) return;
      coming++;
      void chat.reading.newest().finally(() => coming--);
    });
  }
});

whenAnotherTabTells((conversation) => {
  const chat = chats.get(conversation);
  if (chat !== undefined && chat.reading.state.value === "ready" && (chat === current.peek() || chat.liveReplies.length > 0)) void chat.reading.newest();
});
globalThis.window?.addEventListener("storage", (event) => {
  if (isOfLines(event.key)) for (const chat of chats.values()) chat.line.readAgain();
});

// What was typed while the conversation was being made belongs to it.
function moveDraft(id: string): void {
  const typed = draftOf("new");
  setDraft("new", "");
  if (typed !== "") setDraft(id, typed);
}

function leaveFresh(next: Chat): void {
  const left = fresh.value;
  if (left.temporary) left.liveReplies.forEach((live) => live.leave());
  if (left.temporary !== next.temporary) {
    setDraft(next.draftPlace, draftOf(left.draftPlace));
    setDraft(left.draftPlace, "");
  }
  fresh.value = next;
}

function chatOf(id: string): Chat {
  const known = chats.get(id);
  if (known !== undefined) return known;
  for (const [old, chat] of chats) {
    if (chats.size < MOST_CHATS) break;
    if (chat.liveReplies.length === 0) chats.delete(old);
  }
  const chat = new Chat(id, house);
  chats.set(id, chat);
  return chat;
}

function streams(): { chat: Chat; live: LiveReply }[] {
  return [...chats.values()].flatMap((chat) => chat.liveReplies.map((live) => ({ chat, live })));
}

function boundStreams(newest: LiveReply): void {
  const all = streams();
  const others = all.filter(({ chat, live }) => live !== newest && chat !== current.peek());
  for (const { chat, live } of others.slice(0, Math.max(0, all.length + 1 - MOST_STREAMS))) {
    chat.turns.letGo(live);
    chat.reading.forget();
  }
}

function isNew(chat: Chat): boolean {
  return chat.thread.messages.value.size <= 2 && !chat.temporary;
}
