/** What is typed and not sent, per person and conversation. It outlives reloads and signing in again. */
import { signal, type Signal } from "@preact/signals";
import { recallFrom, rememberIn } from "./memory";
import { account } from "./session";

/** The place whose drafts no browser keeps. */
export const UNKEPT = "temporary";

const PAUSE_MS = 300; // a long draft is not written to the disk at each key
const MOST_CHARS = 200_000; // what is longer can't be sent either, and would fill the browser's storage

const drafts = new Map<string, Signal<string>>();
const unsaved = new Map<string, { name: string; conversation: string; text: string }>();
let timer: ReturnType<typeof setTimeout> | undefined;
let owner = "";

export function draftSignal(conversation: string): Signal<string> {
  const name = draftsKey();
  const key = `${name}/${conversation}`;
  const known = drafts.get(key);
  if (known !== undefined) return known;
  const made = signal(recallFrom(name, conversation, ""));
  drafts.set(key, made);
  return made;
}

export function draftOf(conversation: string): string {
  return draftSignal(conversation).peek();
}

export function setDraft(conversation: string, text: string): void {
  draftSignal(conversation).value = text;
  if (conversation === UNKEPT) return;
  const name = draftsKey();
  unsaved.set(`${name}/${conversation}`, { name, conversation, text });
  clearTimeout(timer);
  if (text === "") saveDrafts(); // it was sent: it must not come back
  else timer = setTimeout(saveDrafts, PAUSE_MS);
}

/** Writes down at once what waits for a pause in typing. */
export function saveDrafts(): void {
  clearTimeout(timer);
  for (const { name, conversation, text } of unsaved.values()) {
    rememberIn(name, conversation, text === "" || text.length > MOST_CHARS ? null : text);
  }
  unsaved.clear();
}

if (typeof document !== "undefined") {
  addEventListener("pagehide", saveDrafts);
  document.addEventListener("visibilitychange", saveDrafts);
}

// Kept while the person is signed out for a moment, so that the draft is not filed under nobody.
function draftsKey(): string {
  owner = account.peek()?.id ?? owner;
  return `drafts.${owner}`;
}
