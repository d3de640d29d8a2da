/** The shapes that cross the wire, as the HTTP contract names them. Holds no behaviour. */

import type { Version } from "./chat/branch";

export type MessageStatus = "queued" | "running" | "completed" | "stopped" | "failed" | "refused";
export type Rating = "up" | "down" | null;

export interface Failure {
  code: string;
  message: string;
  retryable: boolean;
  retryAfterSeconds?: number;
}

export interface Message {
  id: string;
  parentId: string | null;
  seq: number;
  role: "user" | "assistant";
  content: string;
  model: string | null;
  requested: string | null;
  reason: string | null;
  status: MessageStatus;
  finish: string | null;
  notices: string[];
  feedback: Rating;
  createdAt: string;
  error: Failure | null;
  version?: Version;
}

export interface Conversation {
  id: string;
  title: string | null;
  pinned: boolean;
  archived: boolean;
  createdAt: string;
  updatedAt: string;
  activeMessageId: string | null;
  headMessageId?: string | null;
  snippet?: Snippet; // of what a search found in the messages
}

export interface Snippet {
  before: string;
  match: string;
  after: string;
}

export interface ConversationPage {
  items: Conversation[];
  nextCursor: string | null;
}

export interface MessagePage {
  items: Message[];
  nextBefore: string | null;
}

export interface Share {
  id: string;
  conversationId: string;
  title: string;
  messages: number;
  createdAt: string;
}

export interface NewShare extends Share {
  token: string;
  url: string;
}

export interface SharedMessage {
  place: number;
  role: "user" | "assistant";
  content: string;
  model: string | null;
  status: MessageStatus;
}

export interface SharedPage {
  title: string;
  createdAt: string;
  messages: SharedMessage[];
  nextAfter: number | null;
}

export interface Budget {
  name: string;
  unit?: string;
  limit: number | null;
  remaining: number | null;
  resetAt: string | null;
}

/** A provider by which one signs in; `start` is where that begins, or null where it is no longer offered. */
export interface SignInWay {
  name: string | null;
  title: string;
  start: string | null;
}

export interface SignInWays {
  registration: boolean;
  providers: SignInWay[];
}

export interface Account {
  id: string;
  name: string;
  role: string;
  plan: string;
  budgets: Budget[];
  running: string[];
  evaluation?: boolean;
  signIn?: { password: boolean; providers: SignInWay[] };
  limits?: { messageTokens?: number; messageBytes?: number; retentionDays?: number | null };
}

export interface OpenSession {
  id: string;
  createdAt: string;
  expiresAt: string;
  isCurrent: boolean;
}

export interface Instructions {
  text: string;
  tokens: number;
  limit: number;
  writtenAt: string | null;
}

export interface ImportReport {
  id: string;
  state: "waiting" | "running" | "completed" | "failed" | "cancelled";
  readBytes: number;
  totalBytes: number | null;
  conversations: { total: number | null; read: number; imported: number; alreadyHere: number; changedSince: number; refused: number };
  messages: number;
  left: { n: number; sourceId: string | null; code: string; message: string }[];
  error: { code: string; message: string } | null;
}

export interface ModelStatus {
  state: "ready" | "fetching" | "starting" | "absent" | "failed";
  done_bytes?: number | null;
  total_bytes?: number | null;
  message?: string | null;
}

export interface Model {
  id: string;
  status?: ModelStatus;
}

export interface ApiKey {
  id: string;
  name: string;
  prefix: string;
  createdAt: string;
  lastUsedAt: string | null;
}

export interface Meta {
  messageId: string;
  userMessageId: string;
  conversationId: string;
  model: string;
  requested: string;
  reason: string;
  notices: string[];
  attempt?: number;
}

export interface Problem {
  title?: string;
  status: number;
  code: string;
  detail?: string;
  retryAfterSeconds?: number;
  field?: string;
  limit?: number | string;
  count?: number;
  budget?: string;
  resetAt?: string;
  activeMessageId?: string;
}
