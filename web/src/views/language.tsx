/** Which language the page speaks; each is named in its own. */
import type { JSX } from "preact";
import { choice, choose, LANGUAGES, t, type Choice } from "../i18n";
import { toast } from "../state/toasts";

export function LanguageSelect(): JSX.Element {
  const change = async (wanted: Choice) => {
    if (!(await choose(wanted))) toast(t("The words of this language could not be fetched. Try again."), "bad");
  };
  return (
    <label class="choice">
      <span class="sr">{t("Language")}</span>
      <select value={choice.value} onChange={(event) => void change(event.currentTarget.value as Choice)}>
        <option value="system">{t("As the browser")}</option>
        {Object.entries(LANGUAGES).map(([code, name]) => <option key={code} value={code} lang={code}>{name}</option>)}
      </select>
    </label>
  );
}
