/** The person's own things, section by section. */
import type { ComponentType, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { k, t } from "../i18n";
import { accountOpen, openAccount, type Section } from "../state/panels";
import { account, refreshAccount, signOut } from "../state/session";
import { attempt } from "./account/attempt";
import { Data } from "./account/data";
import { Instructions } from "./account/instructions";
import { Keys } from "./account/keys";
import { Look } from "./account/look";
import { Sessions } from "./account/sessions";
import { Usage } from "./account/usage";
import { Dialog } from "./dialog";

const SECTIONS: Readonly<Record<Section, { name: string; view: ComponentType }>> = {
  usage: { name: k("Usage"), view: Usage },
  instructions: { name: k("Instructions"), view: Instructions },
  keys: { name: k("API keys"), view: Keys },
  data: { name: k("Your data"), view: Data },
  sessions: { name: k("Sessions"), view: Sessions },
  look: { name: k("Look and language"), view: Look },
};
const NAMES = Object.keys(SECTIONS) as Section[];

export function AccountPanel(): JSX.Element | null {
  const me = account.value;
  const section = accountOpen.value;
  useEffect(() => void refreshAccount(), []);
  if (section === null || !me) return null;
  const View = SECTIONS[section].view;
  return (
    <Dialog title={t("Account")} close={() => (accountOpen.value = null)} wide>
      <p class="who"><strong dir="auto">{me.name}</strong> <span class="plan">{me.plan}</span></p>
      <div class="account">
        <Tabs chosen={section} />
        <div class="account-section" role="tabpanel" id="account-section" aria-labelledby={`tab-${section}`} tabindex={0}>
          <View />
        </div>
      </div>
      <div class="row">
        <a class="hint licences" href="/licences.txt" target="_blank">{t("Licences")}</a>
        <button type="button" class="button" onClick={() => void attempt(signOut)}>{t("Sign out")}</button>
      </div>
    </Dialog>
  );
}

function Tabs({ chosen }: { chosen: Section }): JSX.Element {
  const list = useRef<HTMLDivElement>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    const at = NAMES.indexOf(chosen);
    const next = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const name = NAMES.at(next % NAMES.length)!;
    openAccount(name);
    list.current?.querySelector<HTMLElement>(`#tab-${name}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={t("Account")} ref={list} onKeyDown={onKeyDown}>
      {NAMES.map((name) => (
        <button key={name} type="button" role="tab" id={`tab-${name}`} class="tab" aria-selected={name === chosen} aria-controls="account-section"
          tabindex={name === chosen ? 0 : -1} onClick={() => openAccount(name)}>{t(SECTIONS[name].name)}</button>
      ))}
    </div>
  );
}
