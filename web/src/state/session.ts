/** Who is signed in, and what is left of each budget. */
import { computed, signal } from "@preact/signals";
import { call, Refused, whenSignedOut } from "../api";
import { t } from "../i18n";
import { tightest } from "../text/budget";
import type { Account } from "../wire";
import { forgetPerson } from "./memory";
import { removeNow } from "./removal";

/** `undefined` until the first answer: neither the form nor the chat is shown before. */
export const account = signal<Account | null | undefined>(undefined);
export const offline = signal(false);

/** What is shown at all times: the budget that would refuse a message first. */
export const tightestBudget = computed(() => tightest(account.value?.budgets ?? []));

whenSignedOut(() => {
  account.value = null;
});

/** Signs in by a one-time link if the address holds one; the token leaves the address at once. */
export async function begin(): Promise<string | null> {
  const token = /^#signin=(.+)$/.exec(location.hash)?.[1];
  let said: string | null = null;
  if (token !== undefined) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      await call("POST", "/v1/auth/link", { token: decodeURIComponent(token) });
    } catch (error) {
      said = error instanceof Refused
        ? t("This sign-in link has been used or is too old. Sign in with name and password, or make a new link.")
        : t("The server cannot be reached.");
    }
  }
  await refreshAccount();
  return account.value ? null : said;
}

export async function refreshAccount(): Promise<void> {
  try {
    account.value = await call<Account>("GET", "/v1/me");
    offline.value = false;
  } catch (error) {
    // A 401 has set it to null already. Other trouble signs nobody out.
    const answered = error instanceof Refused && error.problem.status < 500;
    if (account.value) return;
    offline.value = !answered;
    account.value = null;
  }
}

export async function enter(way: "login" | "register", name: string, password: string): Promise<void> {
  await call("POST", `/v1/auth/${way}`, { name, password });
  await refreshAccount();
}

export async function signOut(): Promise<void> {
  await removeNow(false); // what was deleted a moment ago is not left behind
  await call("POST", "/v1/auth/logout");
  forgetPerson();
  location.replace("/"); // the page starts anew: nothing of the person stays in memory
}
