/** Tabs of one browser share a reply: one reads it, the others hear every event, and go on when it is gone. */
import { expect, test } from "vitest";
import { EMPTY, take, type Assembly, type StreamEvent } from "../src/stream/assembly";
import { Tabs, type Channel } from "../src/stream/tabs";

const meta = { messageId: "m_1", userMessageId: "m_0", conversationId: "c_1", model: "small", requested: "auto", reason: "auto", notices: [], attempt: 1 };
const log: StreamEvent[] = [
  { name: "meta", id: 1, data: meta },
  { name: "delta", id: 2, data: { text: "Decode " } },
  { name: "delta", id: 3, data: { text: "reads." } },
  { name: "done", id: 4, data: { finish: "stop" } },
];
const after = (count: number) => log.slice(0, count).reduce((state, event) => take(state, event).state, EMPTY);

/** A browser: channels that hear each other at once, and naps that end when the test says so. */
class Browser {
  readonly channels: Channel[] = [];
  readonly naps: { ms: number; end: () => void }[] = [];
  wake: (() => void)[] = [];

  tab(id: string): Tabs {
    const channel: Channel = {
      onmessage: null,
      postMessage: (data) => this.channels.forEach((other) => other !== channel && other.onmessage?.({ data: structuredClone(data) } as MessageEvent)),
    };
    this.channels.push(channel);
    const sleep = (ms: number, cancel: AbortSignal) =>
      new Promise<void>((resolve) => {
        this.naps.push({ ms, end: resolve });
        cancel.addEventListener("abort", () => resolve());
      });
    return new Tabs(channel, { sleep, dice: () => 0.5, wakes: (tell) => (this.wake.push(tell), () => {}) }, id);
  }
}

const turn = () => new Promise((resolve) => setTimeout(resolve)); // lets promises that are ready go on

function listening(tab: Tabs, from: Assembly = EMPTY) {
  const heard: Assembly[] = [];
  const stop = new AbortController();
  const end = tab.listen("m_1", from, (state) => heard.push(state), stop.signal);
  return { heard, end, stop };
}

test("where nobody reads it a tab reads for itself after a moment", async () => {
  const browser = new Browser();
  const { end, heard } = listening(browser.tab("a"));
  expect(browser.naps[0]?.ms).toBeLessThan(200);
  browser.naps[0]?.end();
  expect(await end).toBe("alone");
  expect(heard).toEqual([]);
});

test("a tab that comes later hears what was said before, and every event from then on", async () => {
  const browser = new Browser();
  const reading = browser.tab("a").read("m_1", () => after(2), () => {});
  const { end, heard } = listening(browser.tab("b"));
  expect(heard.at(-1)).toEqual(after(2));
  reading.tell([log[2]!]);
  reading.tell([log[2]!, log[3]!]); // once more: it is dropped
  expect(await end).toBe("ended");
  expect(heard.at(-1)).toEqual(after(4));
});

test("a tab that has missed an event reads for itself", async () => {
  const browser = new Browser();
  const reading = browser.tab("a").read("m_1", () => after(1), () => {});
  const { end, heard } = listening(browser.tab("b"));
  reading.tell([log[2]!]);
  expect(await end).toBe("alone");
  expect(heard.at(-1)).toEqual(after(1));
});

test("when the reading tab leaves, one that listened asks again before it reads", async () => {
  const browser = new Browser();
  const reading = browser.tab("a").read("m_1", () => after(2), () => {});
  const { end } = listening(browser.tab("b"));
  reading.leave();
  await turn();
  browser.naps.at(-1)?.end(); // the wait that keeps several tabs apart
  await turn();
  browser.naps.at(-1)?.end(); // nobody has answered
  expect(await end).toBe("alone");
});

test("a reading tab that says nothing for longer than a ping takes is given up", async () => {
  const browser = new Browser();
  browser.tab("a").read("m_1", () => after(2), () => {});
  const { end } = listening(browser.tab("b"));
  browser.naps.at(-1)?.end();
  await turn();
  expect(browser.naps.at(-1)?.ms).toBeGreaterThan(15_000);
  browser.naps.at(-1)?.end();
  expect(await end).toBe("alone");
});

test("a tab that wakes up asks at once", async () => {
  const browser = new Browser();
  const reading = browser.tab("a").read("m_1", () => after(2), () => {});
  const { end } = listening(browser.tab("b"));
  browser.naps.at(-1)?.end();
  await turn();
  reading.leave = () => {};
  browser.channels[0]!.onmessage = null; // frozen, and could not say so
  browser.wake.forEach((tell) => tell());
  await turn();
  expect(browser.naps.at(-1)?.ms).toBeLessThan(200);
  browser.naps.at(-1)?.end();
  expect(await end).toBe("alone");
});

test("of two tabs that read the same reply one gives way, as soon as the second begins", () => {
  const browser = new Browser();
  const given: string[] = [];
  browser.tab("a").read("m_1", () => after(1), () => given.push("a"));
  browser.tab("b").read("m_1", () => after(1), () => given.push("b"));
  expect(new Set(given)).toEqual(new Set(["b"]));
});

test("a tab that nobody has asked tells nobody anything", () => {
  const browser = new Browser();
  const reading = browser.tab("a").read("m_1", () => after(1), () => {});
  let told = 0;
  browser.tab("b");
  browser.channels[1]!.onmessage = () => told++;
  reading.tell([log[1]!]);
  expect(told).toBe(0);
  browser.channels[1]!.postMessage({ kind: "ask", reply: "m_1" });
  reading.tell([log[2]!]);
  expect(told).toBe(2);
});

test("a later attempt takes the place of an earlier one, and never the other way round", () => {
  const browser = new Browser();
  const again: Assembly = { ...after(1), meta: { ...meta, attempt: 2 } };
  browser.tab("a").read("m_1", () => again, () => {});
  const later = listening(browser.tab("b"), after(3));
  expect(later.heard.at(-1)).toEqual(again);
  const other = new Browser();
  other.tab("a").read("m_1", () => after(3), () => {});
  const earlier = listening(other.tab("b"), again);
  expect(earlier.heard).toEqual([]);
  later.stop.abort();
  earlier.stop.abort();
});
