/** What the address names: a conversation, or the operations page. It never holds text of a message. */
import { signal } from "@preact/signals";

export type Place = "chat" | "operations";

const OPERATIONS = "/operations";

/** The conversation on screen, or null for a new one. */
export const route = signal<string | null>(readRoute());
/** Which of the page's two rooms is on screen. */
export const place = signal<Place>(readPlace());
/** The secret of a link that somebody shared, or null: then the address is of the person's own. */
export const sharedToken = /^\/s\/([\w-]{1,100})$/.exec(pathname())?.[1] ?? null;
/** Phone: is the list of conversations drawn over the chat? */
export const drawerOpen = signal(false);

if (typeof addEventListener === "function") {
  addEventListener("popstate", () => {
    route.value = readRoute();
    place.value = readPlace();
    drawerOpen.value = false;
  });
  // A sign-in link opened in a tab that has the page already changes only the fragment.
  addEventListener("hashchange", () => {
    if (/^#(signin|refused)=/.test(location.hash)) location.reload();
  });
}

// Unit tests have no address.
function pathname(): string {
  return typeof location === "undefined" ? "/" : location.pathname;
}

function readRoute(): string | null {
  return /^\/c\/([\w-]{1,100})$/.exec(pathname())?.[1] ?? null;
}

function readPlace(): Place {
  return pathname() === OPERATIONS ? "operations" : "chat";
}

export function addressOf(conversationId: string | null): string {
  return conversationId === null ? "/" : `/c/${conversationId}`;
}

export function go(conversationId: string | null): void {
  visit(addressOf(conversationId));
}

export function goToOperations(): void {
  visit(OPERATIONS);
}

function visit(address: string): void {
  if (location.pathname !== address) history.pushState(null, "", address);
  route.value = readRoute();
  place.value = readPlace();
  drawerOpen.value = false;
}

/** The new chat on screen has got its id: same place, so no step back is added. */
export function named(conversationId: string): void {
  if (place.peek() === "chat") history.replaceState(null, "", addressOf(conversationId));
  route.value = conversationId;
}
