import { describe, expect, it } from "vitest";
import { actionOf, SHORTCUTS, type Press } from "../src/shortcuts";
import { ZipCount } from "../src/text/zipcount";

function press(...keys: string[]): Press {
  const names: Record<string, string> = { Esc: "Escape", "⌫": "Backspace" };
  const last = keys.at(-1)!;
  return {
    key: names[last] ?? last,
    ctrlKey: keys.includes("Ctrl"),
    metaKey: keys.includes("Meta"),
    shiftKey: keys.includes("Shift") || last === "?",
    altKey: keys.includes("Alt"),
  };
}

describe("shortcuts", () => {
  it.each(SHORTCUTS.map(({ action, keys }) => [keys.join("+"), keys, action] as const))("%s does what the sheet says", (_, keys, action) => {
    expect(actionOf(press(...keys), false, true)).toBe(action);
    expect(actionOf(press(...keys.map((key) => (key === "Ctrl" ? "Meta" : key))), false, true)).toBe(action);
  });

  it("leave a field its own keys", () => {
    for (const keys of [["Ctrl", "z"], ["?"], ["Ctrl", "Shift", "⌫"]]) expect(actionOf(press(...keys), true, true)).toBeNull();
    expect(actionOf(press("Ctrl", "k"), true, true)).toBe("search");
  });

  it("of a single key can be switched off", () => {
    expect(actionOf(press("?"), false, false)).toBeNull();
    expect(actionOf(press("Ctrl", "Alt", "k"), false, true)).toBeNull();
    expect(actionOf(press("k"), false, true)).toBeNull();
  });
});

describe("files of an archive", () => {
  const mark = [0x50, 0x4b, 3, 4];
  it.each([1, 2, 3, 5, 100])("are counted however it is cut, here every %i bytes", (step) => {
    const bytes = Uint8Array.from([...mark, 0x50, 0x50, 0x4b, 3, 4, 0x50, 0x4b, 1, 2, 0x50, 0x4b, 0x50, 0x4b, 3, 4, 0]);
    const count = new ZipCount();
    for (let at = 0; at < bytes.length; at += step) count.take(bytes.subarray(at, at + step));
    expect(count.files).toBe(3);
  });
});
