/** Every sentence of the page is translated, and no translation is of a sentence that is gone. */
import { describe, expect, it } from "vitest";
import { languageOf, t } from "../src/i18n";
import es from "../src/i18n/es";

const SOURCES = import.meta.glob<string>(["../src/**/*.{ts,tsx}", "!../src/i18n.ts", "!../src/i18n/**"], { query: "?raw", import: "default", eager: true });
const CALL = /(?<![\w.])[tk]\(/g;
const STRING = /"((?:[^"\\\n]|\\.)*)"/y;

/** The sentences of the first argument of each call of `t` or `k`: those of both branches of a choice count. */
function keysIn(text: string): { keys: string[]; unclear: string[] } {
  const keys: string[] = [];
  const unclear: string[] = [];
  for (const call of text.matchAll(CALL)) {
    let at = call.index + call[0].length;
    for (let depth = 0; at < text.length; at++) {
      const letter = text.charAt(at);
      if (letter === '"') {
        STRING.lastIndex = at;
        const found = STRING.exec(text);
        if (found === null) break;
        if (isAnswer(text, at)) keys.push(JSON.parse(found[0]) as string);
        at = STRING.lastIndex - 1;
      } else if (letter === "`") {
        unclear.push(text.slice(call.index, at + 40));
        break;
      } else if ("([{".includes(letter)) {
        depth++;
      } else if (")]}".includes(letter)) {
        if (depth-- === 0) break;
      } else if (letter === "," && depth === 0) {
        break;
      }
    }
  }
  return { keys, unclear };
}

// A string that something is compared with is no sentence.
function isAnswer(text: string, at: number): boolean {
  return !/[=!]==?\s*$/.test(text.slice(Math.max(0, at - 6), at));
}

const found = Object.values(SOURCES).map(keysIn);
const used = new Set(found.flatMap((one) => one.keys));

describe("the words of the page", () => {
  it("are found by what looks for them", () => {
    const text = 'x(t("One")); t(n === 1 ? "Two" : "Three", { n: "no" }); const a = k("Four \\"quoted\\""); at("no"); t(a === "no" ? "Five" : b);';
    expect(keysIn(text)).toEqual({ keys: ["One", "Two", "Three", 'Four "quoted"', "Five"], unclear: [] });
    expect(keysIn("t(`no ${x}`)").unclear).toHaveLength(1);
  });

  it("are never put together of parts", () => {
    expect(found.flatMap((one) => one.unclear)).toEqual([]);
  });

  it("are all there in Spanish", () => {
    expect([...used].filter((key) => !(key in es)).sort()).toEqual([]);
  });

  it("are none that the page has no more", () => {
    expect(Object.keys(es).filter((key) => !used.has(key))).toEqual([]);
  });

  it("keep the places of their values", () => {
    const places = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(([place]) => place).sort();
    const broken = Object.entries(es).filter(([key, sentence]) => places(key).join() !== places(sentence).join());
    expect(broken).toEqual([]);
  });
});

describe("a sentence", () => {
  it("takes its values, and leaves what has none", () => {
    expect(t("{n} of {what}", { n: 3 })).toBe("3 of {what}");
    expect(t("Stop")).toBe("Stop");
  });

  it("is not taken apart by what is put into it", () => {
    expect(t("From {a} to {b}", { a: "{b}", b: "$&" })).toBe("From {b} to $&");
  });
});

describe("the language", () => {
  it.each([
    ["es", [], "es"],
    ["system", ["de-DE", "es-MX", "en"], "es"],
    ["system", ["en-GB", "es"], "en"],
    ["system", ["de"], "en"],
    ["system", [], "en"],
  ] as const)("for the choice %s of who reads %s is %s", (wanted, theirs, expected) => {
    expect(languageOf(wanted, theirs)).toBe(expected);
  });
});
