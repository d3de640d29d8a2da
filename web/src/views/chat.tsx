/** The conversation on screen. It scrolls along only while the reader is at the end. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { current, switchTemporary, type Chat } from "../state/chat";
import { conversations } from "../state/conversations";
import { setDraft } from "../state/drafts";
import { drawerOpen, go } from "../state/route";
import { account } from "../state/session";
import { Banner } from "./banner";
import { Composer } from "./composer";
import { ConversationMenu } from "./conversation-menu";
import { Icon, IconButton, Mark } from "./icons";
import { openLink } from "./link-guard";
import { MessageView, toClipboard } from "./message";

const NEAR_END_PX = 80;

export function ChatView(): JSX.Element {
  const chat = current.value;
  useEffect(() => {
    void chat.load();
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
  const title = chat.temporary ? "Temporary chat" : chat.id.value === null ? "New chat" : conversation?.title || "New chat";
  useEffect(() => {
    document.title = chat.id.value === null ? "Tertulia" : `${title} · Tertulia`;
  }, [title]);
  return (
    <header class="chat-head">
      <IconButton icon="menu" label="Show conversations" class="narrow-only" onClick={() => (drawerOpen.value = true)} />
      <h1 dir="auto">{title}</h1>
      {conversation !== undefined && <ConversationMenu conversation={conversation} />}
      {chat.id.value === null && (chat.temporary || chat.path.value.length === 0) && (
        <IconButton icon="unkept" label="Temporary chat" pressed={chat.temporary} onClick={switchTemporary} />
      )}
    </header>
  );
}

function Thread({ chat }: { chat: Chat }): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const [away, setAway] = useState(false);
  const path = chat.path.value;

  const toEnd = () => {
    following.current = true;
    setAway(false);
    const element = scroller.current;
    if (element !== null) element.scrollTop = path.length === 0 ? 0 : element.scrollHeight;
  };
  useLayoutEffect(toEnd, [chat, chat.state.value === "ready"]);
  useEffect(() => {
    const element = inner.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => {
      if (following.current && scroller.current?.querySelector(".message")) scroller.current.scrollTop = scroller.current.scrollHeight;
    });
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  const onScroll = () => {
    const element = scroller.current;
    if (element === null) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    following.current = atEnd;
    setAway(!atEnd);
  };

  return (
    <>
      <div class="thread" ref={scroller} onScroll={onScroll} onClick={onThreadClick} tabindex={0} role="region" aria-label="Messages">
        <div class="thread-inner" ref={inner}>
          {chat.nextBefore.value !== null && <Older chat={chat} scroller={scroller} />}
          {path.length === 0 ? <Nothing chat={chat} /> : path.map((message) => (
            <MessageView key={message.viewKey} chat={chat} message={message} />
          ))}
        </div>
      </div>
      <div class="foot">
        {away && path.length > 0 && (
          <button type="button" class="to-end" onClick={toEnd} aria-label="To the newest message"><Icon name="bottom" /></button>
        )}
        {chat.state.value !== "gone" && <Composer chat={chat} onSend={toEnd} />}
        <p class="small-print">{chat.temporary && "Nothing of this chat is kept once you leave it. "}Answers can be wrong. Check what matters.</p>
      </div>
    </>
  );
}

function Older({ chat, scroller }: { chat: Chat; scroller: { current: HTMLDivElement | null } }): JSX.Element {
  const button = useRef<HTMLButtonElement>(null);
  const busy = useRef(false);
  const load = async () => {
    const element = scroller.current;
    if (busy.current || element === null) return;
    busy.current = true;
    const below = element.scrollHeight - element.scrollTop;
    await chat.loadOlder();
    // What was read stays where it was.
    requestAnimationFrame(() => {
      element.scrollTop = element.scrollHeight - below;
      busy.current = false;
    });
  };
  useEffect(() => {
    if (button.current === null) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting && scroller.current !== null && scroller.current.scrollTop < 200) void load();
    }, { root: scroller.current });
    watch.observe(button.current);
    return () => watch.disconnect();
  }, [chat]);
  return <button ref={button} type="button" class="button older" onClick={() => void load()}>Show older messages</button>;
}

const OPENERS = [
  "Explain how a heat pump works, with a small table",
  "Write a Python function that groups anagrams",
  "Help me plan a three-day walk in the hills",
  "Turn my notes into a short, friendly email",
];

function Nothing({ chat }: { chat: Chat }): JSX.Element {
  const state = chat.state.value;
  if (state === "gone") {
    return (
      <div class="nothing">
        <h2>This conversation is not here</h2>
        <p>It was deleted, or it belongs to someone else.</p>
        <button type="button" class="button is-main" onClick={() => go(null)}>New chat</button>
      </div>
    );
  }
  if (state === "failed") {
    return (
      <div class="nothing">
        <h2>The conversation could not be loaded</h2>
        <button type="button" class="button is-main" onClick={() => void chat.load()}>Try again</button>
      </div>
    );
  }
  if (state !== "ready") return <div class="nothing" aria-busy="true"><Mark talking /><p class="sr">Loading</p></div>;
  return (
    <div class="nothing">
      <Mark />
      <h2>What shall we talk about{firstName()}?</h2>
      <ul class="openers">
        {OPENERS.map((text) => (
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

function firstName(): string {
  const name = account.value?.name ?? "";
  return name === "" || name.length > 24 ? "" : `, ${name}`;
}

// Buttons and links inside rendered markdown are plain elements: one listener serves them all.
export function onThreadClick(event: MouseEvent): void {
  const target = event.target instanceof Element ? event.target : null;
  const copy = target?.closest<HTMLButtonElement>("button.copy-code");
  if (copy) {
    const code = copy.closest(".code")?.querySelector("code")?.textContent ?? "";
    void toClipboard(code).then((done) => {
      if (!done) return;
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1_500);
    });
    return;
  }
  const link = target?.closest<HTMLAnchorElement>(".prose a[href]");
  if (link) openLink(event, link.href);
}
