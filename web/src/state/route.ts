/** Which conversation the address names. The address never holds text of a message. */
import { signal } from "@preact/signals";

/** The conversation on screen, or null for a new one. */
export const route = signal<string | null>(readRoute());
/** The secret of a link that somebody shared, or null: then the address is of the person's own. */
export const sharedToken = /^\/s\/([\w-]{1,100})$/.exec(location.pathname)?.[1] ?? null;
/** Phone: is the list of conversations drawn over the chat? */
export const drawerOpen = signal(false);

addEventListener("popstate", () => {
  route.value = readRoute();
  drawerOpen.value = false;
});
// A sign-in link opened in a tab that has the page already changes only the fragment.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#signin=")) location.reload();
});

function readRoute(): string | null {
  return /^\/c\/([\w-]{1,100})$/.exec(location.pathname)?.[1] ?? null;
}

export function addressOf(conversationId: string | null): string {
  return conversationId === null ? "/" : `/c/${conversationId}`;
}

export function go(conversationId: string | null): void {
  const address = addressOf(conversationId);
  if (location.pathname !== address) history.pushState(null, "", address);
  route.value = conversationId;
  drawerOpen.value = false;
}

/** The new chat on screen has got its id: same place, so no step back is added. */
export function named(conversationId: string): void {
  history.replaceState(null, "", addressOf(conversationId));
  route.value = conversationId;
}
