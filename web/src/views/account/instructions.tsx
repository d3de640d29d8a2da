/** What the model is told in each of the person's conversations. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { moment, t } from "../../i18n";
import { toast } from "../../state/toasts";
import type { Instructions as Told } from "../../wire";
import { attempt } from "./attempt";

const PATH = "/v1/me/instructions";

export function Instructions(): JSX.Element {
  const [told, setTold] = useState<Told | null>(null);
  const [text, setText] = useState("");
  const [isBusy, setBusy] = useState(false);
  const load = () => attempt(async () => {
    const found = await call<Told>("GET", PATH);
    setTold(found);
    setText(found.text);
  });
  useEffect(() => void load(), []);
  const save = async () => {
    setBusy(true);
    await attempt(async () => {
      const isEmpty = text.trim() === "";
      if (isEmpty) await call("DELETE", PATH);
      else await call("PUT", PATH, { text });
      await load();
      toast(isEmpty ? t("Your instructions are deleted.") : t("Saved. New conversations keep to it."));
    });
    setBusy(false);
  };
  return (
    <section>
      <h3>{t("Instructions")}</h3>
      <p class="hint" id="instructions-hint">
        {t("What the assistant should know and keep to in every conversation: who you are, how to answer. New conversations follow at once, older ones later.")}
      </p>
      <label class="field"><span class="sr">{t("Instructions")}</span>
        <textarea rows={8} dir="auto" value={text} disabled={told === null} aria-describedby="instructions-hint"
          placeholder={t("Answer briefly. I write Python and read German.")} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="row">
        <span class="hint grow">{told !== null && lengthText(told)}</span>
        <button type="button" class="button is-main" disabled={told === null || isBusy || text === told.text} onClick={() => void save()}>{t("Save")}</button>
      </div>
    </section>
  );
}

function lengthText(told: Told): string {
  const length = t("{tokens} of at most {limit} tokens", { tokens: told.tokens, limit: told.limit });
  return told.writtenAt === null ? length : `${length} · ${moment(told.writtenAt)}`;
}
