/** When the planner is asked, what a trial tells, and that both can be left at any moment. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ask, give, isAsking, leave, plan, refusal, wish } from "../src/state/planner";
import { cancel, fault, play, progress, trials } from "../src/state/trial";

const CONDITIONS = { load: 2, ladder: true, paidFirst: true, door: false };
const TOLD = { seconds: 300, groups: [], points: [] };
let bodies: unknown[];

/** Each call is answered by the next of these; a call that is left is refused as a browser does. */
function answers(...all: (() => Response | Promise<Response>)[]): void {
  bodies = [];
  vi.stubGlobal("fetch", (_: string, options: RequestInit) => {
    bodies.push(JSON.parse(String(options.body)));
    const next = all.shift();
    return new Promise<Response>((resolve, reject) => {
      options.signal?.addEventListener("abort", () => reject(new DOMException("left", "AbortError")));
      if (next !== undefined) void Promise.resolve(next()).then(resolve, reject);
    });
  });
}

const json = (status: number, body: unknown) => () => new Response(JSON.stringify(body), { status });

function stream(...events: [string, unknown][]): () => Response {
  const text = events.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join("");
  return () => new Response(text, { status: 200 });
}

beforeEach(() => {
  vi.useFakeTimers();
  wish.value = { values: {}, words: {} };
  plan.value = refusal.value = fault.value = null;
  trials.value = [];
});

afterEach(() => {
  leave();
  cancel();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the planner", () => {
  it("is asked once when a slider rests, for what it then stands at", async () => {
    answers(json(200, { notes: ["late"] }));
    for (const users of [1_000, 2_000, 3_000]) give("users", users);
    await vi.runAllTimersAsync();
    expect(bodies).toEqual([{ values: { users: 3_000 }, words: {} }]);
    expect(plan.value?.notes).toEqual(["late"]);
    expect(isAsking.value).toBe(false);
  });

  it("is not listened to any more when something else was asked", async () => {
    let first: (response: Response) => void = () => {};
    answers(() => new Promise((resolve) => (first = resolve)), json(200, { notes: ["second"] }));
    void ask(0);
    await vi.advanceTimersByTimeAsync(1);
    void ask(0);
    await vi.runAllTimersAsync();
    first(new Response(JSON.stringify({ notes: ["first"] })));
    await vi.runAllTimersAsync();
    expect(plan.value?.notes).toEqual(["second"]);
  });

  it("says why there is no plan, and keeps the one before", async () => {
    answers(json(200, { notes: ["kept"] }), json(400, { code: "invalid_request", detail: "It does not fit." }));
    await Promise.all([ask(0), vi.runAllTimersAsync()]);
    await Promise.all([ask(0), vi.runAllTimersAsync()]);
    expect(refusal.value).toBe("It does not fit.");
    expect(plan.value?.notes).toEqual(["kept"]);
  });

  it("is asked again where others are being answered, a few times", async () => {
    const busy = json(429, { code: "too_many_requests" });
    answers(busy, busy, json(200, { notes: ["at last"] }));
    await Promise.all([ask(0), vi.runAllTimersAsync()]);
    expect(plan.value?.notes).toEqual(["at last"]);
    answers(busy, busy, busy, busy, busy, busy);
    await Promise.all([ask(0), vi.runAllTimersAsync()]);
    expect(bodies).toHaveLength(5);
    expect(refusal.value).not.toBeNull();
  });
});

describe("a trial", () => {
  it("is told with its conditions, the newest first, and no more than four are kept", async () => {
    for (let n = 0; n < 5; n++) {
      answers(stream(["progress", { share: 0.5 }], ["told", { ...TOLD, seconds: n }]));
      await play(wish.value, CONDITIONS);
    }
    expect(bodies).toEqual([{ values: {}, words: {}, ...CONDITIONS }]);
    expect(trials.value.map((one) => one.told.seconds)).toEqual([4, 3, 2, 1]);
    expect(progress.value).toBeNull();
  });

  it("that fails says why", async () => {
    answers(stream(["fail", { code: "invalid_request", message: "It took too long." }]));
    await play(wish.value, CONDITIONS);
    expect([fault.value, trials.value]).toEqual(["It took too long.", []]);
  });

  it("whose stream ends early was not played", async () => {
    answers(stream(["progress", { share: 0.5 }]));
    await play(wish.value, CONDITIONS);
    expect(fault.value).toContain("connection was lost");
  });

  it("that is cancelled leaves nothing, and another can begin", async () => {
    answers();
    const first = play(wish.value, CONDITIONS);
    expect(progress.value).toBe(0);
    await play(wish.value, CONDITIONS); // one at a time
    cancel();
    await first;
    expect([bodies.length, fault.value, progress.value, trials.value.length]).toEqual([1, null, null, 0]);
    answers(stream(["told", TOLD]));
    await play(wish.value, CONDITIONS);
    expect(trials.value).toHaveLength(1);
  });
});
