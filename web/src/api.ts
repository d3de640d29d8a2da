/** Calls to the gateway of this origin. Never sends anything anywhere else, never retries by itself. */
import { k, language, locale, t } from "./i18n";
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
  keepalive?: boolean; // it goes on when the page is left
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
      ...(options.keepalive === true ? { keepalive: true } : {}),
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
  if (error instanceof Unreachable) return t("The server cannot be reached. Check the connection and try again.");
  return t("Something went wrong on this page. Reload it and try again.");
}

export function sentence(problem: Problem): string {
  if (problem.code === "budget_exhausted" && problem.resetAt) return usedUp(problem.budget ?? "", problem.resetAt);
  const said = saidIn(problem);
  const wait = problem.retryAfterSeconds;
  return wait === undefined || wait <= 0 ? said : `${said.replace(/[.\s]*$/, ".")} ${again(wait)}`;
}

// The server's own sentences are in English and say most. In other languages there is one for each code.
const BY_CODE: Readonly<Record<string, string>> = {
  budget_exhausted: k("A budget of yours is used up."),
  too_many_running: k("As many answers of yours as may be are running already."),
  too_many_requests: k("That was too often in a short time."),
  message_too_long: k("The message is too long."),
  text_too_long: k("The text is too long."),
  body_too_large: k("The file or text is too large."),
  conversation_busy: k("An answer is running on this branch."),
  name_taken: k("This name is taken."),
  too_many_shares: k("There are as many links as may be."),
  idempotency_key_reuse: k("This was sent before with another text."),
  not_found: k("It is not here."),
  forbidden: k("This is not allowed, or needs your password again."),
  csrf: k("This is not allowed, or needs your password again."),
  unauthenticated: k("You are signed out."),
  invalid_request: k("The server does not take this."),
  rollout_under_way: k("Another rollout is under way."),
  busy: k("There is too much to do just now."),
  draining: k("The server is being restarted."),
  store_unavailable: k("The store cannot be reached just now; nothing was changed."),
};

function saidIn(problem: Problem): string {
  const english = problem.detail ?? problem.title ?? k("The server refused this.");
  const own = BY_CODE[problem.code];
  return language.value === "en" || own === undefined ? t(english) : t(own);
}

function usedUp(budget: string, resetAt: string): string {
  const rest = t("What is left of the budget ({name}) is not enough for this message.", { name: budgetTitle(budget) });
  const when = t("There is enough again at {time}. Your text is kept below.", { time: clock(new Date(resetAt)) });
  return `${rest} ${when}`;
}

function again(seconds: number): string {
  if (seconds < 90) return t("Try again in {n} s.", { n: Math.ceil(seconds) });
  if (seconds < 5_400) return t("Try again in {n} minutes.", { n: Math.ceil(seconds / 60) });
  return t("Try again at {time}.", { time: clock(new Date(Date.now() + seconds * 1_000)) });
}

function clock(when: Date): string {
  const today = when.toDateString() === new Date().toDateString();
  return when.toLocaleString(locale(), { ...(today ? {} : { weekday: "short" }), hour: "2-digit", minute: "2-digit" });
}
