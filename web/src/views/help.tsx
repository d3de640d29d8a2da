/** The sheet of shortcuts. */
import type { JSX } from "preact";
import { t } from "../i18n";
import { KEYS_OF_PLACES, keyText, SHORTCUTS, singleKeys } from "../shortcuts";
import { helpOpen } from "../state/panels";
import { Dialog } from "./dialog";

export function HelpSheet(): JSX.Element {
  return (
    <Dialog title={t("Keyboard shortcuts")} close={() => (helpOpen.value = false)}>
      <dl class="shortcuts">
        {[...SHORTCUTS, ...KEYS_OF_PLACES].map(({ what, keys }) => (
          <div key={what}>
            <dt>{t(what)}</dt>
            <dd>{keys.map((key) => <kbd key={key}>{keyText(key)}</kbd>)}</dd>
          </div>
        ))}
      </dl>
      <label class="check">
        <input type="checkbox" checked={singleKeys.value} onChange={(event) => (singleKeys.value = event.currentTarget.checked)} />
        <span>{t("Shortcuts of a single key, such as ?")}</span>
      </label>
    </Dialog>
  );
}
