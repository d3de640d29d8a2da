/** A reply followed over broken connections: every word once, and one turn however often it is posted. */
import { expect, test } from "vitest";
import { EMPTY, type Assembly } from "../src/stream/assembly";
import { follow, type Outcome, type World } from "../src/stream/follow";

const words = ["Decode ", "reads ", "every ", "weight."];
const events = [
  ["meta", { messageId: "m_reply", userMessageId: "m_ask", conversationId: "c_1", model: "small", requested: "auto", reason: "auto", notices: [], attempt: 1 }],
  ...words.map((text) => ["delta", { text }]),
  ["done", { finish: "stop" }],
] as [string, object][];
const wire = (from: number, to: number) =>
  events.slice(from, to).map(([name, data], i) => `id: ${from + i + 1}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join("");
const stream = (text: string) => new Response(text, { status: 200, headers: { "Content-Type": "text/event-stream" } });
const post = { path: "/v1/conversations/c_1/messages", body: { content: "Why?" }, key: "m_key" };

type Answer = (path: string, init: RequestInit) => Response | Promise<Response>;

async function run(
  answers: Answer[], turn = { post: post as typeof post | null, messageId: null as string | null }, of: Partial<World> = {},
) {
  const calls: { path: string; last: string | null; key: string | null; method: string }[] = [];
  let state: Assembly = EMPTY;
  const lengths: number[] = [];
  const world: World = {
    fetch: async (path, init) => {
      const headers = new Headers(init.headers);
      calls.push({ path, last: headers.get("Last-Event-ID"), key: headers.get("Idempotency-Key"), method: init.method ?? "GET" });
      const answer = answers[calls.length - 1];
      if (answer === undefined) throw new Error("asked too often");
      return await answer(path, init);
    },
    sleep: async () => {
      if (calls.length >= answers.length) stop.abort(); // no answer is left: the test is over
    },
    dice: () => 0,
    now: () => 0,
    wakes: () => () => {},
    tabs: null,
    ...of,
  };
  const stop = new AbortController();
  const outcome: Outcome = await follow(turn, {
    assembly: (next) => {
      state = next;
      lengths.push(next.text.length);
    },
    link: () => {},
    named: () => {},
  }, world, stop.signal);
  return { outcome, state, calls, lengths };
}

const broken: Answer = () => {
  throw new TypeError("network");
};

test("a stream broken after any event goes on from there and loses nothing", async () => {
  for (let cut = 1; cut < events.length; cut++) {
    const { outcome, state, calls } = await run([() => stream(wire(0, cut)), broken, () => stream(wire(cut, events.length))]);
    expect(outcome).toEqual({ kind: "ended" });
    expect(state.text).toBe(words.join(""));
    expect(calls.at(-1)).toEqual({ path: "/v1/messages/m_reply/stream?attempt=1", last: String(cut), key: null, method: "GET" });
  }
});

test("before the first event the same key is posted again", async () => {
  const { state, calls } = await run([broken, () => stream(""), () => stream(wire(0, events.length))]);
  expect(calls.map((one) => [one.method, one.key])).toEqual([["POST", "m_key"], ["POST", "m_key"], ["POST", "m_key"]]);
  expect(state.text).toBe(words.join(""));
});

test("a reply whose id is known is resumed and not posted again", async () => {
  const named = new Response("", { status: 200, headers: { "Content-Type": "text/event-stream", Location: "/v1/messages/m_reply/stream" } });
  const { calls, state } = await run([() => named, () => stream(wire(0, events.length))]);
  expect(calls[1]).toEqual({ path: "/v1/messages/m_reply/stream", last: null, key: null, method: "GET" });
  expect(state.text).toBe(words.join(""));
});

test("a hole in the numbers is filled by a resume from before it", async () => {
  const { state, calls } = await run([() => stream(wire(0, 2) + wire(3, 6)), () => stream(wire(2, 6))]);
  expect(calls[1]?.last).toBe("2");
  expect(state.text).toBe(words.join(""));
});

test("an id beyond the head starts again from the beginning", async () => {
  const ahead = () => new Response(JSON.stringify({ code: "event_id_ahead" }), { status: 409 });
  const { state, calls } = await run([() => stream(wire(0, 4)), ahead, () => stream(wire(0, 6))]);
  expect(calls[2]).toEqual({ path: "/v1/messages/m_reply/stream", last: null, key: null, method: "GET" });
  expect(state.text).toBe(words.join(""));
});

test("nothing more to come ends the following", async () => {
  const { outcome } = await run([() => stream(wire(0, 3)), () => new Response(null, { status: 204 })]);
  expect(outcome).toEqual({ kind: "gone" });
});

test("a refused post is told and not tried again", async () => {
  const full = () => new Response(JSON.stringify({ code: "budget_exhausted", detail: "Used up." }), { status: 429, headers: { "Retry-After": "60" } });
  const { outcome, calls } = await run([full]);
  expect(outcome.kind === "refused" && outcome.problem).toMatchObject({ code: "budget_exhausted", retryAfterSeconds: 60 });
  expect(calls.length).toBe(1);
});

test("passing trouble of the server is not an end", async () => {
  const draining = () => new Response(JSON.stringify({ code: "draining" }), { status: 503 });
  const { outcome, state } = await run([draining, () => stream(wire(0, 3)), draining, () => stream(wire(3, 6))]);
  expect(outcome).toEqual({ kind: "ended" });
  expect(state.text).toBe(words.join(""));
});

test("an ended session ends the following", async () => {
  const { outcome } = await run([() => new Response("{}", { status: 401 })]);
  expect(outcome).toEqual({ kind: "signed_out" });
});

test("the text never shrinks over any number of breaks", async () => {
  const cuts = [2, 3, 4, 5, 6];
  const { lengths } = await run(cuts.map((to, i) => () => stream(wire(i === 0 ? 0 : (cuts[i - 1] ?? 0), to))));
  expect(lengths).toEqual([...lengths].sort((a, b) => a - b));
});

/** A line that says nothing until it is hung up. */
const silent: Answer = (_, init) =>
  new Response(new ReadableStream({ start: (line) => init.signal?.addEventListener("abort", () => line.error(new Error("hung up"))) }), { status: 200 });

for (const [why, silentMs, isDead] of [["online", 1_500, true], ["online", 500, false], ["seen", 17_000, true], ["seen", 5_000, false]] as const) {
  test(`a line that has been silent for ${silentMs} ms is ${isDead ? "taken for dead" : "kept"} when the page is ${why}`, async () => {
    let nowMs = 0;
    let wake: (why: "online" | "seen") => void = () => {};
    let hungUp = false;
    const line: Answer = (path, init) => {
      init.signal?.addEventListener("abort", () => (hungUp = true));
      queueMicrotask(() => queueMicrotask(() => {
        nowMs += silentMs;
        wake(why);
        if (!hungUp) over.abort();
      }));
      return silent(path, init);
    };
    const over = new AbortController();
    const world: World = {
      fetch: async (path, init) => line(path, init),
      sleep: async () => over.abort(),
      dice: () => 0,
      now: () => nowMs,
      wakes: (tell) => ((wake = tell), () => (wake = () => {})),
      tabs: null,
    };
    const sink = { assembly: () => {}, link: (link: string) => links.push(link), named: () => {} };
    const links: string[] = [];
    expect(await follow({ post: null, messageId: "m_reply" }, sink, world, over.signal)).toEqual({ kind: "left" });
    expect(links.includes("broken")).toBe(isDead);
  });
}

test("a tab that gives a reply to another one listens to it, and nobody is told of a broken line", async () => {
  const links: string[] = [];
  let listened = 0;
  const tabs = {
    listen: async () => (++listened === 1 ? "alone" : "ended"),
    read: (_: string, __: unknown, give: () => void) => (give(), { tell: () => {}, leave: () => {} }),
  } as unknown as NonNullable<World["tabs"]>;
  const world: World = { fetch: async (path, init) => silent(path, init), sleep: async () => {}, dice: () => 0, now: () => 0, wakes: () => () => {}, tabs };
  const sink = { assembly: () => {}, link: (link: string) => links.push(link), named: () => {} };
  expect(await follow({ post: null, messageId: "m_reply" }, sink, world, new AbortController().signal)).toEqual({ kind: "ended" });
  expect(listened).toBe(2);
  expect(links).not.toContain("broken");
});

test("while another tab reads the reply nothing is fetched, and what it missed is fetched from there", async () => {
  const heard: Assembly = { ...EMPTY, text: "Decode ", lastId: 2, meta: { ...(events[0]![1] as NonNullable<Assembly["meta"]>) } };
  const tabs = {
    listen: async (_: string, __: Assembly, keep: (state: Assembly) => void) => (keep(heard), "alone" as const),
    read: () => ({ tell: () => {}, leave: () => {} }),
  } as unknown as NonNullable<World["tabs"]>;
  const { calls, state } = await run([() => stream(wire(2, events.length))], { post: null, messageId: "m_reply" }, { tabs });
  expect(calls).toEqual([{ path: "/v1/messages/m_reply/stream?attempt=1", last: "2", key: null, method: "GET" }]);
  expect(state.text).toBe(words.join(""));
});

test("a reply that is let go while other tabs are asked for it opens no connection", async () => {
  const stop = new AbortController();
  const paths: string[] = [];
  const tabs = {
    listen: async () => (stop.abort(), "alone"),
    read: () => ({ tell: () => {}, leave: () => {} }),
  } as unknown as NonNullable<World["tabs"]>;
  const world: World = { fetch: async (path) => (paths.push(path), stream(wire(0, events.length))), sleep: async () => {}, dice: () => 0, now: () => 0, wakes: () => () => {}, tabs };
  const sink = { assembly: () => {}, link: () => {}, named: () => {} };
  expect(await follow({ post: null, messageId: "m_reply" }, sink, world, stop.signal)).toEqual({ kind: "left" });
  expect(paths).toEqual([]);
});
