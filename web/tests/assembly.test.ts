/** A reply put together from stream events: nothing lost, nothing twice, whatever breaks. */
import { expect, test } from "vitest";
import { EMPTY, take, type Assembly, type StreamEvent, type Verdict } from "../src/stream/assembly";

const meta = { messageId: "m_1", userMessageId: "m_0", conversationId: "c_1", model: "small", requested: "auto", reason: "auto", notices: [], attempt: 1 };
const delta = (id: number, text: string): StreamEvent => ({ name: "delta", id, data: { text } });
const log: StreamEvent[] = [
  { name: "meta", id: 1, data: meta },
  delta(2, "Decode reads "),
  delta(3, "every weight "),
  delta(4, "per token."),
  { name: "done", id: 5, data: { finish: "stop" } },
];

function play(events: StreamEvent[], from: Assembly = EMPTY): { state: Assembly; verdicts: Verdict[] } {
  let state = from;
  const verdicts = events.map((event) => {
    const step = take(state, event);
    state = step.state;
    return step.verdict;
  });
  return { state, verdicts };
}

test("the text is the concatenation of all deltas and ends with done", () => {
  const { state, verdicts } = play(log);
  expect(state.text).toBe("Decode reads every weight per token.");
  expect(state.finish).toBe("stop");
  expect(verdicts.at(-1)).toBe("ended");
});

test("a stream cut after any event and replayed from the start gives the same text", () => {
  for (let cut = 0; cut <= log.length; cut++) {
    const first = play(log.slice(0, cut)).state;
    expect(play(log, first).state).toEqual(play(log).state);
  }
});

test("an event that was seen before is dropped", () => {
  const { state } = play(log.slice(0, 3));
  expect(take(state, log[2]!)).toEqual({ state, verdict: "dropped" });
});

test("an event over a gap is not taken", () => {
  const { state } = play(log.slice(0, 2));
  expect(take(state, log[3]!)).toEqual({ state, verdict: "gap" });
});

test("a reset drops the text and the numbers start again", () => {
  const cut = play(log.slice(0, 3)).state;
  const { state, verdicts } = play([{ name: "reset", id: null, data: { reason: "buffer_lost" } }, ...log], cut);
  expect(state.text).toBe("Decode reads every weight per token.");
  expect(verdicts).not.toContain("gap");
});

test("a reset that carries number one is followed by number two", () => {
  const cut = play(log.slice(0, 3)).state;
  const { state } = play([{ name: "reset", id: 1, data: {} }, { name: "meta", id: 2, data: meta }, delta(3, "New.")], cut);
  expect(state.text).toBe("New.");
  expect(state.lastId).toBe(3);
});

test("the attempt of the newest meta is kept", () => {
  const { state } = play([...log.slice(0, 2), { name: "reset", id: null, data: {} }, { name: "meta", id: 1, data: { ...meta, attempt: 2 } }]);
  expect(state.meta?.attempt).toBe(2);
});

test("a place in the queue carries no number and goes away with the first word", () => {
  const queued = play([{ name: "queue", id: null, data: { position: 3, estimatedWaitSeconds: 12 } }]).state;
  expect(queued.queue).toEqual({ position: 3, waitSeconds: 12 });
  expect(play(log.slice(0, 2), queued).state.queue).toBeNull();
});

test("an unknown event counts, so that the next one is not a gap", () => {
  const { state, verdicts } = play([log[0]!, { name: "later_version", id: 2, data: {} }, delta(3, "x")]);
  expect(verdicts).toEqual(["took", "took", "took"]);
  expect(state.text).toBe("x");
});

test("a failure ends the reply and keeps the words that came", () => {
  const { state, verdicts } = play([...log.slice(0, 3), { name: "fail", id: 4, data: { code: "replica_lost", message: "Broken.", retryable: true, retryAfterSeconds: 5 } }]);
  expect(verdicts.at(-1)).toBe("ended");
  expect(state.text).toBe("Decode reads every weight ");
  expect(state.failure).toEqual({ code: "replica_lost", message: "Broken.", retryable: true, retryAfterSeconds: 5 });
});
