/** Which models there are, how far the large one is, and which one the person asks for. */
import { computed, effect, signal } from "@preact/signals";
import { call } from "../api";
import { t } from "../i18n";
import type { Model } from "../wire";
import { recall, remember } from "./memory";

const POLL_MS = 3_000; // only while a model is on its way

const ROLES = ["small", "large"];

export const models = signal<Model[]>([]);
export const wanted = signal(recall("model", "auto"));
effect(() => remember("model", wanted.value));

/** What the picker offers: the roles where there are some, else every model by its name. */
export const offered = computed(() => {
  const roles = models.value.filter((one) => ROLES.includes(one.id));
  return roles.length > 0 ? roles : models.value.filter((one) => one.id !== "auto");
});

export const coming = computed(() => offered.value.filter((one) => isComing(one)));

let timer: ReturnType<typeof setTimeout> | undefined;

export async function loadModels(): Promise<void> {
  clearTimeout(timer);
  try {
    const list = await call<{ data: Model[] }>("GET", "/v1/models");
    models.value = list.data;
    if (wanted.value !== "auto" && !list.data.some((one) => one.id === wanted.value)) wanted.value = "auto";
  } catch {
    // The picker keeps what it had; the chat works with "auto".
  }
  if (coming.value.length > 0 && !document.hidden) timer = setTimeout(() => void loadModels(), POLL_MS);
}

/** `34 %`, or nothing while the size is not known. */
export function progressOf(model: Model): number | null {
  const { done_bytes: done, total_bytes: total } = model.status ?? {};
  return typeof done === "number" && typeof total === "number" && total > 0 ? Math.min(1, done / total) : null;
}

export function labelOf(model: Model): string {
  const name = titleOf(model.id);
  const state = model.status?.state ?? "ready";
  if (state === "ready") return name;
  const share = progressOf(model);
  if (state === "fetching" && share === 1) return t("{model} – unpacking", { model: name });
  if (state === "fetching" && share === null) return t("{model} – downloading", { model: name });
  if (state === "fetching") return t("{model} – downloading {percent} %", { model: name, percent: Math.floor(share! * 100) });
  if (state === "starting") return t("{model} – starting", { model: name });
  return state === "absent" ? t("{model} – not there", { model: name }) : t("{model} – failed", { model: name });
}

/** Roles begin like words of the page; names of models stay as their makers write them. */
export function titleOf(id: string): string {
  return !/^[a-z]+$/.test(id) ? id : id.charAt(0).toUpperCase() + id.slice(1);
}

function isComing(model: Model): boolean {
  return model.status?.state === "fetching" || model.status?.state === "starting";
}
