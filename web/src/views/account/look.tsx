/** Language, colours and keys. */
import type { JSX } from "preact";
import { t } from "../../i18n";
import { accountOpen, helpOpen } from "../../state/panels";
import { LanguageSelect } from "../language";
import { ThemeSelect } from "../theme";

export function Look(): JSX.Element {
  return (
    <section>
      <h3>{t("Look and language")}</h3>
      <div class="setting"><span aria-hidden="true">{t("Language")}</span><LanguageSelect /></div>
      <div class="setting"><span aria-hidden="true">{t("Colours")}</span><ThemeSelect /></div>
      <div class="setting">
        <span>{t("Keyboard shortcuts")}</span>
        <button type="button" class="button" onClick={() => {
          accountOpen.value = null;
          helpOpen.value = true;
        }}>{t("Show them")}</button>
      </div>
    </section>
  );
}
