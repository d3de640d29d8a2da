/** Reads server-sent events out of a byte stream. Refuses ids that are not plain decimal numbers. */
import { createParser } from "eventsource-parser";
import type { StreamEvent } from "./assembly";

const PLAIN_ID = /^[0-9]{1,10}$/;
const MAX_BLOCK_CHARS = 4_000_000; // one whole stored reply fits; an endless line does not

/** A push parser: bytes go in as they come, whole events come out. */
export function eventReader(sink: {
  event(event: StreamEvent): void;
  retry(ms: number): void;
  broken(): void;
}): (bytes: Uint8Array) => void {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true }); // the parser drops the BOM itself
  let pending = 0;
  const parser = createParser({
    onEvent(message) {
      pending = 0;
      const data = asObject(message.data);
      if (data === null) return sink.broken();
      const id = message.id ?? "";
      if (id !== "" && !PLAIN_ID.test(id)) return sink.broken();
      sink.event({ name: message.event ?? "message", id: id === "" ? null : Number(id), data });
    },
    onRetry: (ms) => sink.retry(ms),
  });
  return (bytes) => {
    pending += bytes.length;
    if (pending > MAX_BLOCK_CHARS) return sink.broken();
    parser.feed(decoder.decode(bytes, { stream: true }));
  };
}

function asObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}
