/** What following a reply needs of the browser: network, time, chance, and the other tabs of this person. */
import { effect } from "@preact/signals";
import type { Wake, World } from "../stream/follow";
import { Tabs } from "../stream/tabs";
import { account } from "./session";

let tabs: { of: string; value: Tabs; channel: BroadcastChannel } | null = null;

/** For the person who is signed in: tabs of another one hear nothing. */
export function world(): World {
  return { fetch: (path, init) => fetch(path, init), sleep, dice: Math.random, now: () => performance.now(), wakes, tabs: tabsOf(account.peek()?.id) };
}

function tabsOf(person: string | undefined): Tabs | null {
  if (person === undefined || typeof BroadcastChannel === "undefined") return null;
  if (tabs?.of === person) return tabs.value;
  tabs?.channel.close();
  const channel = new BroadcastChannel(`tertulia.replies.${person}`);
  const mine = crypto.getRandomValues(new Uint32Array(2)).join("-");
  const value = new Tabs(channel, { sleep: nap, dice: Math.random, wakes: (tell) => wakes(tell) }, mine);
  tabs = { of: person, value, channel };
  return value;
}

// A tab that is closed or frozen tells nobody anything any more.
if (typeof document !== "undefined") {
  addEventListener("pagehide", () => tabs?.value.leaveAll());
  document.addEventListener("freeze", () => tabs?.value.leaveAll());
}

function wakes(tell: (why: Wake) => void): () => void {
  const online = () => tell("online");
  const seen = () => {
    if (!document.hidden) tell("seen");
  };
  addEventListener("online", online);
  addEventListener("pageshow", seen);
  document.addEventListener("resume", seen);
  document.addEventListener("visibilitychange", seen);
  return () => {
    removeEventListener("online", online);
    removeEventListener("pageshow", seen);
    document.removeEventListener("resume", seen);
    document.removeEventListener("visibilitychange", seen);
  };
}

/** Waits, but not longer than until the network is back or the page is looked at. */
function sleep(ms: number, cancel: AbortSignal): Promise<void> {
  const woken = new AbortController();
  const wake = () => woken.abort();
  const unwake = wakes(wake);
  if (cancel.aborted) wake();
  cancel.addEventListener("abort", wake);
  return nap(ms, woken.signal).finally(() => {
    unwake();
    cancel.removeEventListener("abort", wake);
  });
}

function nap(ms: number, cancel: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (cancel.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      cancel.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    cancel.addEventListener("abort", end);
  });
}

let news: { of: string; channel: BroadcastChannel } | null = null;
let tell: (conversation: string) => void = () => {};

/** A turn of this tab has begun: tabs that show the conversation look at it again. */
export function tellOtherTabs(conversation: string): void {
  newsOf(account.peek()?.id)?.postMessage(conversation);
}

export function whenAnotherTabTells(heard: (conversation: string) => void): void {
  tell = heard;
  effect(() => void newsOf(account.value?.id));
}

function newsOf(person: string | undefined): BroadcastChannel | null {
  if (person === undefined || typeof BroadcastChannel === "undefined") return null;
  if (news?.of === person) return news.channel;
  news?.channel.close();
  news = { of: person, channel: new BroadcastChannel(`tertulia.turns.${person}`) };
  news.channel.onmessage = (event) => {
    if (typeof event.data === "string") tell(event.data);
  };
  return news.channel;
}
