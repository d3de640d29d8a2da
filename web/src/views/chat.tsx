/** The conversation on screen. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { stretchesOf, type Stretch } from "../chat/stretches";
import { t } from "../i18n";
import { current, switchTemporary, type Chat, type Shown } from "../state/chat";
import { conversations } from "../state/conversations";
import { setDraft } from "../state/drafts";
import { drawerOpen, go } from "../state/route";
import { account } from "../state/session";
import { Banner } from "./banner";
import { Composer } from "./composer";
import { ConversationMenu } from "./conversation-menu";
import { Icon, IconButton, Mark } from "./icons";
import { openLink } from "./link-guard";
import { toClipboard } from "./message";
import { useNearness } from "./near";
import { useScroll } from "./scroll";
import { StretchView } from "./stretch";
import { WaitingLine } from "./waiting";

const AHEAD = "900px 0px 0px"; // older messages are there before the reader has come to their place

export function ChatView(): JSX.Element {
  const chat = current.value;
  useEffect(() => {
    void chat.reading.newest();
  }, [chat]);
  return (
    <main class="chat" id="chat">
      <Header chat={chat} />
      <Banner />
      <Thread chat={chat} />
    </main>
  );
}

function Header({ chat }: { chat: Chat }): JSX.Element {
  const conversation = conversations.value.find((one) => one.id === chat.id.value);
  const unnamed = chat.temporary ? t("Temporary chat") : t("New chat");
  const title = chat.temporary || chat.id.value === null ? unnamed : conversation?.title || unnamed;
  useEffect(() => {
    document.title = chat.id.value === null ? "Tertulia" : `${title} · Tertulia`;
  }, [title]);
  return (
    <header class="chat-head">
      <IconButton icon="menu" label={t("Show conversations")} class="narrow-only" onClick={() => (drawerOpen.value = true)} />
      <h1 dir="auto">{title}</h1>
      {conversation !== undefined && <ConversationMenu conversation={conversation} />}
      {chat.id.value === null && (chat.temporary || chat.path.value.length === 0) && (
        <IconButton icon="unkept" label={t("Temporary chat")} pressed={chat.temporary} onClick={switchTemporary} />
      )}
    </header>
  );
}

function Thread({ chat }: { chat: Chat }): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const path = chat.path.value;
  const { away, toEnd, onScroll } = useScroll(scroller, inner);
  useNearness(inner);
  useLayoutEffect(toEnd, [chat, chat.reading.state.value === "ready"]);
  const stretches = useRef<Stretch<Shown>[]>([]);
  stretches.current = stretchesOf(path, stretches.current);

  return (
    <>
      <div class="thread" ref={scroller} onScroll={onScroll} onClick={onThreadClick} tabindex={0} role="region" aria-label={t("Messages")}>
        <div class="thread-inner" ref={inner}>
          {chat.reading.nextBefore.value !== null && <Older chat={chat} scroller={scroller} />}
          {path.length === 0 ? <Nothing chat={chat} /> : stretches.current.map((one, at, all) => stretchView(chat, one, at === all.length - 1))}
          <WaitingLine chat={chat} />
        </div>
      </div>
      <div class="foot">
        {away && path.length > 0 && (
          <button type="button" class="to-end" onClick={toEnd} aria-label={t("To the newest message")}><Icon name="bottom" /></button>
        )}
        {chat.reading.state.value !== "gone" && <Composer chat={chat} onSend={toEnd} />}
        <p class="small-print">
          {chat.temporary && `${t("Nothing of this chat is kept once you leave it.")} `}{t("Answers can be wrong. Check what matters.")}
        </p>
      </div>
    </>
  );
}

// What has not changed is the same element, which is not even compared.
const elements = new WeakMap<Shown[], { chat: Chat; isLast: boolean; element: JSX.Element }>();

function stretchView(chat: Chat, { key, messages }: Stretch<Shown>, isLast: boolean): JSX.Element {
  const known = elements.get(messages);
  if (known?.chat === chat && known.isLast === isLast) return known.element;
  const element = <StretchView key={key} chat={chat} messages={messages} isLast={isLast} />;
  elements.set(messages, { chat, isLast, element });
  return element;
}

function Older({ chat, scroller }: { chat: Chat; scroller: { current: HTMLDivElement | null } }): JSX.Element {
  const button = useRef<HTMLButtonElement>(null);
  const busy = useRef(false);
  const before = chat.reading.nextBefore.value;
  const load = async () => {
    if (busy.current) return;
    busy.current = true;
    await chat.reading.older();
    busy.current = false;
  };
  // A new watch for each page: one that is still in sight would not be told of again.
  useEffect(() => {
    if (button.current === null) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) void load();
    }, { root: scroller.current, rootMargin: AHEAD });
    watch.observe(button.current);
    return () => watch.disconnect();
  }, [chat, before]);
  return <button ref={button} type="button" class="button older" onClick={() => void load()}>{t("Show older messages")}</button>;
}

function openers(): string[] {
  return [
    t("Explain how a heat pump works, with a small table"),
    t("Write a Python function that groups anagrams"),
    t("Help me plan a three-day walk in the hills"),
    t("Turn my notes into a short, friendly email"),
  ];
}

function Nothing({ chat }: { chat: Chat }): JSX.Element {
  const state = chat.reading.state.value;
  if (state === "gone") {
    return (
      <div class="nothing">
        <h2>{t("This conversation is not here")}</h2>
        <p>{t("It was deleted, or it belongs to someone else.")}</p>
        <button type="button" class="button is-main" onClick={() => go(null)}>{t("New chat")}</button>
      </div>
    );
  }
  if (state === "failed") {
    return (
      <div class="nothing">
        <h2>{t("The conversation could not be loaded")}</h2>
        <button type="button" class="button is-main" onClick={() => void chat.reading.newest()}>{t("Try again")}</button>
      </div>
    );
  }
  if (state !== "ready") return <div class="nothing" aria-busy="true"><Mark talking /><p class="sr">{t("Loading")}</p></div>;
  return (
    <div class="nothing">
      <Mark />
      <h2>{greeting()}</h2>
      <ul class="openers">
        {openers().map((text) => (
          <li key={text}>
            <button type="button" onClick={() => {
              setDraft(chat.draftPlace, text);
              document.querySelector<HTMLTextAreaElement>(".composer-text")?.focus();
            }}>{text}</button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function greeting(): string {
  const name = account.value?.name ?? "";
  return name === "" || name.length > 24 ? t("What shall we talk about?") : t("What shall we talk about, {name}?", { name });
}

// Buttons and links inside rendered markdown are plain elements: one listener serves them all.
export function onThreadClick(event: MouseEvent): void {
  const target = event.target instanceof Element ? event.target : null;
  const copy = target?.closest<HTMLButtonElement>("button.copy-code");
  if (copy) {
    const code = copy.closest(".code")?.querySelector("code")?.textContent ?? "";
    void toClipboard(code).then((done) => {
      if (!done) return;
      copy.textContent = t("Copied");
      setTimeout(() => (copy.textContent = t("Copy")), 1_500);
    });
    return;
  }
  const link = target?.closest<HTMLAnchorElement>(".prose a[href]");
  if (link) openLink(event, link.href);
}
