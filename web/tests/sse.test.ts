/** The event parser gives the same events wherever the network cuts the bytes. */
import { expect, test } from "vitest";
import type { StreamEvent } from "../src/stream/assembly";
import { eventReader } from "../src/stream/sse";

const wire =
  "retry: 1000\n\n: ping\n\nid: 1\nevent: delta\ndata: {\"text\":\"Grüße 👩‍🚀 \\n\\nevent: done\"}\n\n" +
  "event: queue\ndata: {\"position\":2}\n\nid: 2\r\nevent: done\r\ndata: {\"finish\":\"stop\"}\r\n\r\n";

function read(chunks: Uint8Array[]): { events: StreamEvent[]; retries: number[]; broken: number } {
  const got = { events: [] as StreamEvent[], retries: [] as number[], broken: 0 };
  const feed = eventReader({
    event: (event) => got.events.push(event),
    retry: (ms) => got.retries.push(ms),
    broken: () => (got.broken += 1),
  });
  chunks.forEach(feed);
  return got;
}

const expected: StreamEvent[] = [
  { name: "delta", id: 1, data: { text: "Grüße 👩‍🚀 \n\nevent: done" } },
  { name: "queue", id: null, data: { position: 2 } },
  { name: "done", id: 2, data: { finish: "stop" } },
];

test("bytes cut at every place give the same events", () => {
  const bytes = new TextEncoder().encode(wire);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const got = read([bytes.slice(0, cut), bytes.slice(cut)]);
    expect(got).toEqual({ events: expected, retries: [1000], broken: 0 });
  }
});

test("bytes that come one by one give the same events", () => {
  const bytes = new TextEncoder().encode(wire);
  expect(read(Array.from(bytes, (byte) => Uint8Array.of(byte))).events).toEqual(expected);
});

test("a block without its empty line is not an event", () => {
  expect(read([new TextEncoder().encode('id: 9\nevent: delta\ndata: {"text":"x"}\n')]).events).toEqual([]);
});

test("an id that is not a plain number breaks the stream", () => {
  for (const id of ["-1", "+5", "1_000", "٣", "99999999999"]) {
    expect(read([new TextEncoder().encode(`id: ${id}\ndata: {}\n\n`)]).broken).toBe(1);
  }
});
