/** What administrators see and do: the fleet, the people on it, what they may use, and what the model is told. */
import { signal } from "@preact/signals";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { k, t } from "../i18n";
import { line, watchFleet, type Line } from "../state/fleet";
import { drawerOpen } from "../state/route";
import { IconButton } from "./icons";
import { lazy } from "./lazy";
import { FleetView } from "./operations/fleet";
import { PlansView } from "./operations/plans";
import { PromptsView } from "./operations/prompts";
import { SafetyView } from "./operations/safety";
import { UsersView } from "./operations/users";

type Tab = "fleet" | "users" | "plans" | "prompts" | "safety" | "planner";

const PlannerView = lazy(() => import("./operations/planner").then((part) => part.PlannerView));

const TABS: Readonly<Record<Tab, { name: string; view: ComponentType }>> = {
  fleet: { name: k("Fleet"), view: FleetView },
  users: { name: k("Users"), view: UsersView },
  plans: { name: k("Plans and budgets"), view: PlansView },
  prompts: { name: k("System prompts"), view: PromptsView },
  safety: { name: k("Safety"), view: SafetyView },
  planner: { name: k("Planner"), view: PlannerView },
};
const LINES: Readonly<Record<Line, string>> = {
  connecting: k("connecting"),
  live: k("live"),
  broken: k("connecting again"),
  forbidden: k("for administrators only"),
};
const tab = signal<Tab>("fleet");

export function Operations(): JSX.Element {
  useEffect(() => {
    const stop = new AbortController();
    void watchFleet(stop.signal);
    document.title = `${t("Operations")} · Tertulia`;
    return () => stop.abort();
  }, []);
  const View = TABS[tab.value].view;
  return (
    <main class="chat operations" id="chat">
      <header class="chat-head">
        <IconButton icon="menu" label={t("Show conversations")} class="narrow-only" onClick={() => (drawerOpen.value = true)} />
        <h1>{t("Operations")}</h1>
        <span class={`line is-${line.value}`}>{t(LINES[line.value])}</span>
      </header>
      <nav class="operation-tabs" aria-label={t("Operations")}>
        {(Object.keys(TABS) as Tab[]).map((name) => (
          <button key={name} type="button" class="tab" aria-current={name === tab.value ? "page" : undefined} onClick={() => (tab.value = name)}>
            {t(TABS[name].name)}
          </button>
        ))}
      </nav>
      <div class="operation-body" tabindex={0}>
        {line.value === "forbidden" ? <p class="list-note">{t("This page is for administrators.")}</p> : <View />}
      </div>
    </main>
  );
}
