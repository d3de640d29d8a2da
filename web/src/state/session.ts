/** Who is signed in, and what is left of each budget. */
import { computed, signal } from "@preact/signals";
import { call, Refused, whenSignedOut } from "../api";
import { k, t } from "../i18n";
import { tightest } from "../text/budget";
import type { Account, SignInWays } from "../wire";
import { forgetPerson } from "./memory";
import { removeNow } from "./removal";

/** `undefined` until the first answer: neither the form nor the chat is shown before. */
export const account = signal<Account | null | undefined>(undefined);
export const offline = signal(false);

/** What is shown at all times: the budget that would refuse a message first. */
export const tightestBudget = computed(() => tightest(account.value?.budgets ?? []));

/** False for those who sign in by providers alone. */
export const hasPassword = computed(() => account.value?.signIn?.password !== false);

/** Why a provider's sign-in came to nothing, by the word that the gateway puts behind `#refused=`. */
const REFUSALS: Readonly<Record<string, string>> = {
  expired: k("This sign-in took too long or was begun in another browser. Begin again."),
  provider_refused: k("The sign-in was cancelled or refused by the provider."),
  provider_away: k("The provider cannot be reached just now. Try again in a moment, or sign in with a password."),
  provider_untrusted: k("The provider's answer could not be verified, so nobody was signed in. Tell an administrator."),
  not_admitted: k("You have no account here, and none is made for you. Ask an administrator."),
  disabled: k("This account is disabled. Ask an administrator."),
  too_many: k("There were too many tries to sign in. Wait a few minutes and try again."),
  store_away: k("The store cannot be reached just now; nothing was changed."),
};

whenSignedOut(() => {
  account.value = null;
});

/** How one may sign in besides by a password. */
export async function fetchWays(): Promise<SignInWays> {
  return await call<SignInWays>("GET", "/v1/auth/ways");
}

/** Signs in by a one-time link if the address holds one; the token leaves the address at once. */
export async function begin(): Promise<string | null> {
  const refused = /^#refused=([a-z_]+)$/.exec(location.hash)?.[1];
  if (refused !== undefined) {
    history.replaceState(null, "", location.pathname + location.search);
    await refreshAccount();
    const words = Object.hasOwn(REFUSALS, refused) ? REFUSALS[refused] : undefined;
    return account.value || words === undefined ? null : t(words);
  }
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
