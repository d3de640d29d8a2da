/** Light, dark, or as the system says. */
import { effect, signal } from "@preact/signals";
import type { JSX } from "preact";
import { k, t } from "../i18n";
import { recall, remember } from "../state/memory";
import { IconButton, type IconName } from "./icons";

type Theme = "system" | "light" | "dark";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS: Record<Theme, IconName> = { system: "auto", light: "sun", dark: "moon" };
const WORDS: Record<Theme, string> = { system: k("as the system"), light: k("light"), dark: k("dark") };

const theme = signal<Theme>(recall<Theme>("theme", "system"));
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  remember("theme", theme.value);
});

export function ThemeButton(): JSX.Element {
  const now = theme.value in NEXT ? theme.value : "system";
  return <IconButton icon={ICONS[now]} label={t("Colours: {theme}", { theme: t(WORDS[now]) })} onClick={() => (theme.value = NEXT[now])} />;
}

export function ThemeSelect(): JSX.Element {
  return (
    <label class="choice">
      <span class="sr">{t("Colours")}</span>
      <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        {(Object.keys(WORDS) as Theme[]).map((one) => <option key={one} value={one}>{t(WORDS[one])}</option>)}
      </select>
    </label>
  );
}
