/** The page's shortcuts: one table for the keyboard and for the sheet that lists them. */
import { effect, signal } from "@preact/signals";
import { k } from "./i18n";
import { recall, remember } from "./state/memory";

export type Action = "search" | "new" | "box" | "delete" | "undo" | "account" | "help";

export interface Shortcut {
  action: Action;
  what: string; // to be translated
  keys: readonly string[]; // as they are printed on keyboards; Ctrl is ⌘ on a Mac
}

export const SHORTCUTS: readonly Shortcut[] = [
  { action: "new", what: k("New chat"), keys: ["Ctrl", "Shift", "O"] },
  { action: "search", what: k("Search conversations"), keys: ["Ctrl", "K"] },
  { action: "box", what: k("To the message box"), keys: ["Shift", "Esc"] },
  { action: "delete", what: k("Delete this conversation"), keys: ["Ctrl", "Shift", "⌫"] },
  { action: "undo", what: k("Undo the deletion"), keys: ["Ctrl", "Z"] },
  { action: "account", what: k("Account and settings"), keys: ["Ctrl", ","] },
  { action: "help", what: k("This list"), keys: ["?"] },
];

/** What keys do that belong to a place, not to the whole page. */
export const KEYS_OF_PLACES: readonly { what: string; keys: readonly string[] }[] = [
  { what: k("Send the message"), keys: ["Enter"] },
  { what: k("A new line"), keys: ["Shift", "Enter"] },
  { what: k("Through the list of conversations"), keys: ["↑", "↓"] },
  { what: k("Close what is open"), keys: ["Esc"] },
];

/** Shortcuts of a single key can be switched off: speech input types letters that nobody meant. */
export const singleKeys = signal(recall("singleKeys", true));
if (typeof localStorage !== "undefined") effect(() => remember("singleKeys", singleKeys.value));

export interface Press {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  shiftKey: boolean;
  altKey: boolean;
}

/** What a press of keys means, if anything. `isTyping`: it went into a field. */
export function actionOf(press: Press, isTyping: boolean, single = singleKeys.value): Action | null {
  const command = (press.ctrlKey || press.metaKey) && !press.altKey;
  const key = press.key.length === 1 ? press.key.toLowerCase() : press.key;
  if (command && press.shiftKey && key === "o") return "new";
  if (command && press.shiftKey && key === "Backspace") return isTyping ? null : "delete";
  if (command && !press.shiftKey && key === "k") return "search";
  if (command && !press.shiftKey && key === ",") return "account";
  if (command && !press.shiftKey && key === "z") return isTyping ? null : "undo";
  if (!command && press.shiftKey && key === "Escape") return "box";
  if (!command && !press.altKey && key === "?") return isTyping || !single ? null : "help";
  return null;
}

const isMac = typeof navigator !== "undefined" && /Mac|iP(hone|ad)/.test(navigator.userAgent);

export function keyText(key: string): string {
  return key === "Ctrl" && isMac ? "⌘" : key;
}
