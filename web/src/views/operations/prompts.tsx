/** Versions of the system prompt, who is on them, and how one is rolled out. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { moment, t } from "../../i18n";
import { toast } from "../../state/toasts";
import type { Prompt, Rollout } from "../../wire-admin";
import { attempt } from "../account/attempt";

const SHARES = [0, 1, 10, 50, 100];

interface Prompts {
  items: Prompt[];
  rollout: Rollout;
}

export function PromptsView(): JSX.Element {
  const [known, setKnown] = useState<Prompts | null>(null);
  const [text, setText] = useState("");
  const load = () => attempt(async () => setKnown(await call<Prompts>("GET", "/v1/admin/prompts")));
  useEffect(() => void load(), []);
  const add = () => attempt(async () => {
    const { version } = await call<{ version: string }>("POST", "/v1/admin/prompts", { text });
    setText("");
    toast(t("Added as {version}. Nobody is on it until you roll it out.", { version }));
    await load();
  });
  const rollOut = (version: string, share: number) => attempt(async () => {
    await call("PUT", "/v1/admin/prompts/rollout", { version, share });
    await load();
  });
  return (
    <>
      {known !== null && <RolloutView rollout={known.rollout} rollOut={rollOut} />}
      <section class="panel">
        <h2>{t("Add a system prompt")}</h2>
        <form class="stack" onSubmit={(event) => {
          event.preventDefault();
          void add();
        }}>
          <label class="field"><span class="sr">{t("Text of the system prompt")}</span>
            <textarea rows={6} dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)}
              placeholder={t("What the model is told at the beginning of every conversation")} />
          </label>
          <div class="row"><button type="submit" class="button is-main" disabled={text.trim() === ""}>{t("Add")}</button></div>
        </form>
      </section>
      <section class="panel">
        <h2>{t("Versions")}</h2>
        <ul class="versions">
          {known?.items.map((prompt) => <PromptView key={prompt.version} prompt={prompt} rollout={known.rollout} rollOut={rollOut} />)}
        </ul>
      </section>
    </>
  );
}

type RollOut = (version: string, share: number) => Promise<boolean>;

function RolloutView({ rollout, rollOut }: { rollout: Rollout; rollOut: RollOut }): JSX.Element {
  const isWhole = rollout.share === 100 || rollout.version === rollout.base;
  return (
    <section class="panel">
      <h2>{t("Rollout")}</h2>
      <p>
        {isWhole
          ? t("All new conversations get {version}.", { version: rollout.version })
          : t("Of a hundred new conversations {n} get {version}, the others {base}.", { n: rollout.share, version: rollout.version, base: rollout.base })}
      </p>
      {!isWhole && (
        <div class="row is-start" role="group" aria-label={t("Share of {version}", { version: rollout.version })}>
          {SHARES.map((share) => (
            <button key={share} type="button" class="button" aria-pressed={share === rollout.share} onClick={() => void rollOut(rollout.version, share)}>
              {t("{n} %", { n: share })}
            </button>
          ))}
        </div>
      )}
      <p class="hint">{t("A conversation keeps the prompt that it began with until its context is next cut. 0 % takes a rollout back, 100 % completes it.")}</p>
    </section>
  );
}

function PromptView({ prompt, rollout, rollOut }: { prompt: Prompt; rollout: Rollout; rollOut: RollOut }): JSX.Element {
  const isOut = prompt.version === rollout.version;
  const isOpen = rollout.share !== 100 && rollout.share !== 0 && rollout.version !== rollout.base;
  const count = prompt.isWhole ? prompt.conversations : `${prompt.conversations}+`;
  return (
    <li>
      <div class="row">
        <strong class="grow" dir="ltr">{prompt.version}</strong>
        <span class="hint">{moment(prompt.createdAt)} · {t("{n} conversations", { n: count })}</span>
        {!isOut && <button type="button" class="button is-small" disabled={isOpen} onClick={() => void rollOut(prompt.version, 1)}>{t("Begin with 1 %")}</button>}
      </div>
      <details>
        <summary dir="auto">{prompt.text.slice(0, 120)}</summary>
        <pre class="prompt-text" dir="auto" tabindex={0}>{prompt.text}</pre>
      </details>
    </li>
  );
}
