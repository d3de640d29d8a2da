/** One conversation over a gateway that is played here: what is sent, kept, given back and shown. */
import { beforeEach, expect, test, vi } from "vitest";

vi.hoisted(() => {
  const kept = new Map<string, string>();
  const page = { addEventListener: () => {}, removeEventListener: () => {}, hidden: false, hasFocus: () => true };
  Object.assign(globalThis, {
    localStorage: { getItem: (name: string) => kept.get(name) ?? null, setItem: (name: string, value: string) => kept.set(name, value), removeItem: (name: string) => kept.delete(name) },
    document: page,
    addEventListener: () => {},
    removeEventListener: () => {},
    location: { pathname: "/", hash: "", search: "" },
    history: { pushState: () => {}, replaceState: () => {} },
  });
});

const { Chat } = await import("../src/state/talk");
type House = import("../src/state/talk").House;

interface Call {
  method: string;
  path: string;
  body: Record<string, unknown>;
  key: string | null;
}

type Answer = (call: Call) => Response | Promise<Response>;

const json = (status: number, value: unknown) => new Response(JSON.stringify(value), { status });
const problem = (status: number, code: string, more = {}) => json(status, { code, detail: code, ...more });
const about = (more = {}) => ({ id: "c_1", title: "", pinned: false, archived: false, createdAt: "", updatedAt: "", activeMessageId: null, headMessageId: null, ...more });
const message = (id: string, parentId: string | null, role: string, more = {}) => ({
  id, parentId, role, seq: Number(/\d+$/.exec(id)![0]), content: `text of ${id}`, model: null, requested: null, reason: null, status: "completed", finish: "stop",
  notices: [], feedback: null, createdAt: "", error: null, version: { number: 1, count: 1, previous: null, following: null }, ...more,
});
const wire = (events: [string, object][]) => events.map(([name, data], i) => `id: ${i + 1}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join("");
const reply = (id: string, userMessageId: string, text: string) =>
  new Response(wire([["meta", { messageId: id, userMessageId, conversationId: "c_1", model: "small", requested: "auto", reason: "auto", notices: [], attempt: 1 }], ["delta", { text }], ["done", { finish: "stop" }]]), {
    status: 200, headers: { Location: `/v1/messages/${id}/stream` },
  });

vi.setConfig({ testTimeout: 60_000 }); // a busy machine; nothing here takes long by itself
const until = (holds: () => void) => vi.waitFor(holds, { timeout: 50_000, interval: 5 });

let calls: Call[];
let answers: Record<string, Answer>;

beforeEach(() => {
  calls = [];
  answers = { "GET /v1/conversations/c_1": () => json(200, about()), "GET messages": () => json(200, { items: [], nextBefore: null }), "GET /v1/me": () => json(200, { id: "u_1", name: "ada" }) };
  vi.stubGlobal("fetch", async (path: string, init: RequestInit = {}) => {
    const call: Call = { method: init.method ?? "GET", path, body: JSON.parse(String(init.body ?? "{}")), key: new Headers(init.headers).get("Idempotency-Key") };
    calls.push(call);
    const short = path.includes("/messages?") ? "messages" : path.endsWith("c_1/messages") ? "ask" : path;
    const answer = answers[`${call.method} ${short}`];
    return answer === undefined ? problem(404, "not_found") : await answer(call);
  });
});

function chat(typed = "", id: string | null = "c_1"): { chat: InstanceType<typeof Chat>; given: string[] } {
  const given: string[] = [];
  const house: House = {
    made: () => {}, began: () => {}, isRunning: () => {}, asked: () => {}, ended: () => {},
    giveBack: (_, content) => typed === "" && given.push(content) > 0,
  };
  const made = new Chat(id, house);
  made.line.items.value.forEach((one) => made.line.remove(one.key));
  return { chat: made, given };
}

const texts = (one: InstanceType<typeof Chat>) => one.path.value.map((shown) => shown.content);
const asks = () => calls.filter((call) => call.method === "POST" && call.path.endsWith("c_1/messages"));

test("a conversation opens at the branch that was shown last", async () => {
  answers["GET messages"] = () => json(200, { items: [message("m_1", "m_0", "user"), message("m_2", "m_1", "assistant")], nextBefore: "m_1" });
  const { chat: one } = chat();
  await one.reading.newest();
  expect(calls.some((call) => call.path.includes("branch=head&limit=50"))).toBe(true);
  expect(texts(one)).toEqual(["text of m_1", "text of m_2"]);
  expect(one.reading.nextBefore.value).toBe("m_1");
});

test("what waits is sent when the answer has ended, below it and in order", async () => {
  const { chat: one } = chat();
  await one.reading.newest();
  let n = 0;
  answers["POST ask"] = () => reply(`m_${2 * ++n}`, `m_${2 * n - 1}`, `answer ${n}`);
  one.send("first", null, "auto");
  expect(one.sendLater("second", "auto")).toBe(true);
  expect(one.sendLater("third", "large")).toBe(true);
  await until(() => expect(texts(one)).toEqual(["first", "answer 1", "second", "answer 2", "third", "answer 3"]));
  expect(asks().map(({ body }) => body["parentId"])).toEqual([null, "m_2", "m_4"]);
  expect(asks().map(({ body }) => body["model"])).toEqual(["auto", "auto", "large"]);
  expect(one.line.items.value).toEqual([]);
});

test("what waits for an answer that fails is held until the person says so", async () => {
  const { chat: one } = chat();
  await one.reading.newest();
  answers["POST ask"] = () => new Response(wire([["fail", { code: "internal", message: "Broken.", retryable: true }]]), { status: 200, headers: { Location: "/v1/messages/m_2/stream" } });
  one.send("first", null, "auto");
  one.sendLater("second", "auto");
  await until(() => expect(one.line.held.value).toBe(true));
  answers["POST ask"] = () => reply("m_4", "m_3", "answer");
  one.sendWaiting();
  await until(() => expect(texts(one).slice(-2)).toEqual(["second", "answer"]));
  expect(one.line.held.value).toBe(false);
});

test("a message that is refused is given back, with the reason", async () => {
  const { chat: one, given } = chat();
  await one.reading.newest();
  answers["POST ask"] = () => problem(429, "budget_exhausted");
  one.send("first", null, "auto");
  await until(() => expect(given).toEqual(["first"]));
  expect(one.path.value).toEqual([]);
  expect(one.problem.value?.problem?.code).toBe("budget_exhausted");
});

test("a message that is refused while another one is typed waits beside it", async () => {
  const { chat: one } = chat("typed meanwhile");
  await one.reading.newest();
  answers["POST ask"] = () => problem(429, "too_many_running");
  one.send("first", null, "auto");
  await until(() => expect(one.line.items.value.map(({ content }) => content)).toEqual(["first"]));
  expect(one.line.held.value).toBe(true);
});

test("a message below which another device asks waits for that answer", async () => {
  const { chat: one, given } = chat();
  answers["GET messages"] = () => json(200, { items: [message("m_1", null, "user"), message("m_2", "m_1", "assistant")], nextBefore: null });
  await one.reading.newest();
  const under = [message("m_1", null, "user"), message("m_2", "m_1", "assistant"), message("m_3", "m_2", "user"), message("m_4", "m_3", "assistant", { status: "running", content: "" })];
  answers["GET messages"] = () => json(200, { items: under, nextBefore: null });
  answers["GET /v1/messages/m_4/stream"] = () => reply("m_4", "m_3", "theirs");
  let refused = false;
  answers["POST ask"] = () => (refused ? reply("m_6", "m_5", "mine") : ((refused = true), problem(409, "conversation_busy", { activeMessageId: "m_4" })));
  one.send("first", "m_2", "auto");
  await until(() => expect(texts(one).slice(-4)).toEqual(["text of m_3", "theirs", "first", "mine"]));
  expect(given).toEqual([]);
  expect(asks().at(-1)?.body["parentId"]).toBe("m_4");
});

test("a stop that is quicker than its message waits for it", async () => {
  const { chat: one } = chat();
  await one.reading.newest();
  let arrive = () => {};
  const arrived = new Promise<void>((resolve) => (arrive = resolve));
  answers["POST ask"] = async () => {
    await arrived;
    return new Response(new ReadableStream(), { status: 200, headers: { Location: "/v1/messages/m_2/stream" } });
  };
  answers["POST /v1/messages/m_2/stop"] = () => json(200, message("m_2", "m_1", "assistant", { status: "stopped", content: "" }));
  one.send("first", null, "auto");
  await until(() => expect(asks().length).toBe(1));
  answers[`POST /v1/messages/${asks()[0]?.key}/stop`] = () => {
    const unknown = problem(404, "not_found");
    // The message comes in when this has been read, and what follows from it has been done.
    unknown.json = async () => (setTimeout(arrive), { code: "not_found" });
    return unknown;
  };
  await one.stop(one.running.value!);
  expect(calls.filter(({ path }) => path.endsWith("/stop")).length).toBe(2);
  expect(one.path.value.at(-1)).toMatchObject({ id: "m_2", status: "stopped", live: null });
});

test("a first message that is stopped while the server is away does not hold up the next one", async () => {
  const { chat: one, given } = chat("", null);
  answers["POST /v1/conversations"] = () => new Promise<Response>(() => {});
  one.send("first", null, "auto");
  const creations = () => calls.filter(({ path, method }) => method === "POST" && path === "/v1/conversations");
  await until(() => expect(creations().length).toBe(1));
  await one.stop(one.running.value!);
  expect(given).toEqual(["first"]);
  answers["POST /v1/conversations"] = () => json(201, about());
  answers["POST ask"] = () => reply("m_2", "m_1", "answer");
  one.send("second", null, "auto");
  await until(() => expect(texts(one)).toEqual(["second", "answer"]));
  expect(new Set(creations().map(({ key }) => key)).size).toBe(1);
});

test("another version is shown as the server has it, and the server is told", async () => {
  const { chat: one } = chat();
  const version = (number: number) => ({ version: { number, count: 2, previous: number === 2 ? "m_2" : null, following: number === 1 ? "m_5" : null } });
  answers["GET messages"] = ({ path }) =>
    json(200, {
      items: path.includes("branch=m_2")
        ? [message("m_1", null, "user"), message("m_2", "m_1", "assistant", version(1)), message("m_3", "m_2", "user"), message("m_4", "m_3", "assistant")]
        : [message("m_1", null, "user"), message("m_5", "m_1", "assistant", version(2))],
      nextBefore: null,
    });
  answers["PUT /v1/conversations/c_1/head"] = () => json(200, about());
  await one.reading.newest();
  const last = one.leaf()!;
  expect(one.versionOf(last)).toMatchObject({ number: 2, count: 2, previous: "m_2" });
  await one.reading.show("m_2");
  expect(one.path.value.map(({ id }) => id)).toEqual(["m_1", "m_2", "m_3", "m_4"]);
  expect(calls.find(({ method }) => method === "PUT")?.body).toEqual({ messageId: "m_2" });
  await one.reading.show("m_5");
  expect(one.leaf()?.id).toBe("m_5");
});
