/** A message as the page holds it: the server's, and what only the page knows of it. Pure. */
import type { LiveReply } from "../state/live";
import type { Assembly } from "../stream/assembly";
import type { Message, MessageStatus } from "../wire";

export interface Shown extends Message {
  viewKey: string; // stays the same when the server's id replaces the page's
  live: LiveReply | null;
  refusal: string | null; // what is said instead of the rest; only the stream tells it
}

/** A message that the server has not heard of yet. */
export function blank(id: string, parentId: string | null, seq: number, role: "user" | "assistant"): Shown {
  return {
    id, parentId, seq, role, content: "", model: null, requested: null, reason: null, status: "queued",
    finish: null, notices: [], feedback: null, createdAt: new Date().toISOString(), error: null,
    viewKey: id, live: null, refusal: null,
  };
}

export function isUnderWay(status: MessageStatus): boolean {
  return status === "queued" || status === "running";
}

/** How a reply stands whose events have come to an end. */
export function statusOf(state: Assembly): MessageStatus {
  if (state.failure !== null) return "failed";
  if (state.refusal !== null || state.finish === "refused") return "refused";
  return state.finish === "stopped" || state.finish === "abandoned" ? "stopped" : "completed";
}

/** Whether there is more to say: it was stopped, nobody followed it, or the longest answer was reached. */
export function canGoOn(message: Shown): boolean {
  return message.content !== "" && (message.status === "stopped" || (message.status === "completed" && message.finish === "length"));
}
