/** What somebody shared by a link: to read and nothing else. Asks for nothing of whoever is signed in here. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, Refused, sentenceOf } from "../api";
import { day, t } from "../i18n";
import { titleOf } from "../state/models";
import type { SharedMessage, SharedPage } from "../wire";
import { onThreadClick } from "./chat";
import { Mark } from "./icons";
import { LinkGuard } from "./link-guard";
import { Markdown } from "./markdown";
import { CopyButton } from "./message";

type State = { kind: "loading" } | { kind: "gone" } | { kind: "failed"; said: string } | { kind: "shown"; page: SharedPage };

export function SharedView({ token }: { token: string }): JSX.Element {
  const [state, setState] = useState<State>({ kind: "loading" });
  const load = () => {
    setState({ kind: "loading" });
    void whole(token).then(setState);
  };
  useEffect(load, [token]);
  useEffect(() => {
    document.title = state.kind === "shown" ? `${state.page.title} · Tertulia` : "Tertulia";
  }, [state]);
  if (state.kind === "loading") return <main class="opening" aria-busy="true"><Mark talking /><span class="sr">{t("Loading")}</span></main>;
  if (state.kind !== "shown") {
    return (
      <main class="opening">
        <Mark />
        <h1>{state.kind === "gone" ? t("There is nothing behind this link") : t("This could not be loaded")}</h1>
        <p>{state.kind === "gone" ? t("Whoever shared it has taken it back, or the address is not whole.") : state.said}</p>
        {state.kind === "failed" && <button type="button" class="button is-main" onClick={load}>{t("Try again")}</button>}
      </main>
    );
  }
  return (
    <main class="chat">
      <header class="chat-head"><h1 dir="auto">{state.page.title || t("A conversation")}</h1></header>
      <div class="thread" onClick={onThreadClick} tabindex={0} role="region" aria-label={t("Messages")}>
        <div class="thread-inner">
          <p class="hint">{t("Shared on {day}. What was said later is not here.", { day: day(state.page.createdAt) })}</p>
          {state.page.messages.map((message) => <SharedMessageView key={message.place} message={message} />)}
          <p class="small-print">{t("Answers can be wrong. Check what matters.")}</p>
        </div>
      </div>
      <LinkGuard />
    </main>
  );
}

function SharedMessageView({ message }: { message: SharedMessage }): JSX.Element {
  if (message.role === "user") {
    return (
      <article class="message question" aria-label={t("Question")}>
        <h2 class="sr">{t("Question")}</h2>
        <div class="bubble" dir="auto">{message.content}</div>
      </article>
    );
  }
  return (
    <article class="message reply" aria-label={t("Answer")}>
      <h2 class="sr">{t("Answer")}</h2>
      {message.content !== "" && <Markdown text={message.content} growing={false} />}
      {message.status === "stopped" && <p class="ending">{message.content === "" ? t("Stopped before the first word.") : t("Stopped.")}</p>}
      {message.status === "refused" && <p class="ending">{t("This was not answered.")}</p>}
      <div class="tools">
        {message.content !== "" && <CopyButton text={message.content} />}
        {message.model && <span class="mark-text" title={t("The model that answered")}>{titleOf(message.model)}</span>}
      </div>
    </article>
  );
}

async function whole(token: string): Promise<State> {
  const messages: SharedMessage[] = [];
  try {
    for (let after = 0; ; ) {
      const page = await call<SharedPage>("GET", `/v1/shares/${token}?limit=200&after=${after}`);
      messages.push(...page.messages);
      if (page.nextAfter === null) return { kind: "shown", page: { ...page, messages } };
      after = page.nextAfter;
    }
  } catch (error) {
    if (error instanceof Refused && error.problem.status === 404) return { kind: "gone" };
    return { kind: "failed", said: sentenceOf(error) };
  }
}
