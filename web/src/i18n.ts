/**
 * The page's words in the reader's language. A key is the English sentence itself, so that the source reads as
 * the page does and a missing translation is shown in English. Other languages are fetched when they are needed.
 */
import { computed, signal } from "@preact/signals";
import { recall, remember } from "./state/memory";

export type Language = "en" | "es";
export type Choice = Language | "system";
type Words = Readonly<Record<string, string>>;

/** Each language by the name that its speakers give it. */
export const LANGUAGES: Readonly<Record<Language, string>> = { en: "English", es: "Español" };
const LOADERS: Readonly<Record<Exclude<Language, "en">, () => Promise<{ default: Words }>>> = {
  es: () => import("./i18n/es"),
};
const RIGHT_TO_LEFT = ["ar", "fa", "he", "ur"]; // none is translated yet; the layout is ready for them

export const choice = signal<Choice>(recall<Choice>("language", "system"));
const spoken = signal<{ language: Language; words: Words }>({ language: "en", words: {} });
export const language = computed(() => spoken.value.language);

/** The sentence in the reader's language, with `{name}` replaced by the value of that name. */
export function t(key: string, values?: Record<string, string | number>): string {
  const sentence = spoken.value.words[key] ?? key;
  if (values === undefined) return sentence;
  return sentence.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    return value === undefined ? whole : typeof value === "number" ? number(value) : value;
  });
}

/** Marks a sentence of a table that is given to `t` later, so that it is found and translated. */
export function k(key: string): string {
  return key;
}

/** For dates and numbers: the browser's own form where the page speaks the browser's language. */
export function locale(): string | undefined {
  const own = typeof navigator === "undefined" ? "" : navigator.language;
  return own.startsWith(language.value) ? undefined : language.value;
}

export function number(value: number, options?: Intl.NumberFormatOptions): string {
  return value.toLocaleString(locale(), options);
}

export function day(time: string): string {
  return new Date(time).toLocaleDateString(locale(), { dateStyle: "medium" });
}

export function moment(time: string): string {
  return new Date(time).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "short" });
}

/** Changes the language and keeps the choice; the page goes on in the old one if the words can't be fetched. */
export async function choose(wanted: Choice): Promise<boolean> {
  choice.value = wanted;
  remember("language", wanted === "system" ? null : wanted);
  return await speak(languageOf(wanted));
}

/** The language of the first paint. Never fails: English needs no fetch. */
export async function beginSpeaking(): Promise<void> {
  await speak(languageOf(choice.value));
}

async function speak(wanted: Language): Promise<boolean> {
  try {
    const words = wanted === "en" ? {} : (await LOADERS[wanted]()).default;
    spoken.value = { language: wanted, words };
  } catch {
    return false;
  }
  document.documentElement.lang = wanted;
  document.documentElement.dir = RIGHT_TO_LEFT.includes(wanted) ? "rtl" : "ltr";
  return true;
}

/** The first of the browser's languages that the page speaks. */
export function languageOf(wanted: Choice, theirs: readonly string[] = typeof navigator === "undefined" ? [] : navigator.languages): Language {
  if (wanted in LANGUAGES) return wanted as Language;
  const known = theirs.map((one) => one.slice(0, 2).toLowerCase()).find((one) => one in LANGUAGES);
  return (known as Language | undefined) ?? "en";
}
