/** Light, dark, or as the system says. */
import { effect, signal } from "@preact/signals";
import type { JSX } from "preact";
import { recall, remember } from "../state/memory";
import { IconButton, type IconName } from "./icons";

type Theme = "system" | "light" | "dark";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS: Record<Theme, IconName> = { system: "auto", light: "sun", dark: "moon" };
const WORDS: Record<Theme, string> = { system: "as the system", light: "light", dark: "dark" };

const theme = signal<Theme>(recall<Theme>("theme", "system"));
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  remember("theme", theme.value);
});

export function ThemeButton(): JSX.Element {
  const now = theme.value in NEXT ? theme.value : "system";
  return <IconButton icon={ICONS[now]} label={`Colours: ${WORDS[now]}`} onClick={() => (theme.value = NEXT[now])} />;
}
