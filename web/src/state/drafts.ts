/** What is typed and not sent, per person and conversation. It outlives reloads and signing in again. */
import { signal, type Signal } from "@preact/signals";
import { recallFrom, rememberIn } from "./memory";
import { account } from "./session";

/** The place whose drafts no browser keeps. */
export const UNKEPT = "temporary";

const drafts = new Map<string, Signal<string>>();
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
  if (conversation !== UNKEPT) rememberIn(draftsKey(), conversation, text === "" ? null : text);
}

// Kept while the person is signed out for a moment, so that the draft is not filed under nobody.
function draftsKey(): string {
  owner = account.peek()?.id ?? owner;
  return `drafts.${owner}`;
}
