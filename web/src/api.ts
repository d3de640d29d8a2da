/** Calls to the gateway of this origin. Never sends anything anywhere else, never retries by itself. */
import { budgetTitle } from "./text/budget";
import type { Problem } from "./wire";

/** The gateway said no; `problem` says why in a sentence for people. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail ?? problem.title ?? problem.code);
  }
}

/** No answer came at all. */
export class Unreachable extends Error {}

export interface CallOptions {
  key?: string; // Idempotency-Key
  signal?: AbortSignal;
}

let onSignedOut: () => void = () => {};

/** Who is told when any call finds that the session has ended. */
export function whenSignedOut(tell: () => void): void {
  onSignedOut = tell;
}

export async function call<T>(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<T> {
  const response = await send(method, path, body, options);
  if (response.ok) return (response.status === 204 ? undefined : await response.json()) as T;
  const problem = await problemOf(response);
  if (response.status === 401 && !path.startsWith("/v1/auth/")) onSignedOut();
  throw new Refused(problem);
}

/** `call` that goes on until an answer comes: for calls with a key, which may be sent again. */
export async function callUntilAnswered<T>(
  method: string, path: string, body: unknown, key: string, signal: AbortSignal,
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await call<T>(method, path, body, { key, signal });
    } catch (error) {
      const passing = error instanceof Unreachable || (error instanceof Refused && error.problem.status >= 502);
      if (!passing || signal.aborted || (tries >= 5 && error instanceof Refused)) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.min(10_000, 300 * 2 ** tries)));
    }
  }
}

async function send(method: string, path: string, body: unknown, options: CallOptions): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (options.key !== undefined) headers["Idempotency-Key"] = options.key;
  try {
    return await fetch(path, {
      method,
      headers,
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  } catch {
    throw new Unreachable("The server cannot be reached.");
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  const wait = Number(response.headers.get("Retry-After"));
  const plain: Problem = {
    status: response.status,
    code: `http_${response.status}`,
    title: `The server answered ${response.status}.`,
    ...(wait > 0 ? { retryAfterSeconds: wait } : {}),
  };
  try {
    const body = (await response.json()) as Partial<Problem>;
    return { ...plain, ...body, status: response.status };
  } catch {
    return plain;
  }
}

/** What to tell a person about any error of a call. */
export function sentenceOf(error: unknown): string {
  if (error instanceof Refused) return sentence(error.problem);
  if (error instanceof Unreachable) return "The server cannot be reached. Check the connection and try again.";
  return "Something went wrong on this page. Reload it and try again.";
}

export function sentence(problem: Problem): string {
  if (problem.code === "budget_exhausted" && problem.resetAt) return usedUp(problem.budget ?? "", problem.resetAt);
  const said = problem.detail ?? problem.title ?? "The server refused this.";
  const wait = problem.retryAfterSeconds;
  return wait === undefined || wait <= 0 ? said : `${said.replace(/[.\s]*$/, ".")} Try again ${inTime(wait)}.`;
}

function usedUp(budget: string, resetAt: string): string {
  const rest = `What is left of the budget (${budgetTitle(budget)}) is not enough for this message.`;
  return `${rest} There is enough again ${clock(new Date(resetAt))}. Your text is kept below.`;
}

function inTime(seconds: number): string {
  if (seconds < 90) return `in ${Math.ceil(seconds)} s`;
  if (seconds < 5_400) return `in ${Math.ceil(seconds / 60)} minutes`;
  return clock(new Date(Date.now() + seconds * 1_000));
}

function clock(when: Date): string {
  const today = when.toDateString() === new Date().toDateString();
  return `at ${when.toLocaleString(undefined, { ...(today ? {} : { weekday: "short" }), hour: "2-digit", minute: "2-digit" })}`;
}
