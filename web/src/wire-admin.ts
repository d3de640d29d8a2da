/** The shapes of what administrators alone are told. Holds no behaviour. */

/** Milliseconds since 1970, waiting, running, tokens a second, first text and gap (95th percentiles, seconds), rung, load. */
export type Point = [number, number, number, number | null, number | null, number | null, number, number | null];

export interface ReplicaSight {
  name: string;
  model: string;
  engine: string;
  state: "ready" | "held" | "draining" | "resting" | "starting" | "refused" | "lost";
  message: string | null;
  slots: number;
  running: number;
  owedTokens: number;
  tokensPerSecond: number | null;
  prefillPerSecond: number | null;
  gapSeconds: number | null;
  cacheUsed: number | null;
  cacheHits: number | null;
}

export interface Percentiles {
  count: number;
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

export interface FleetNow {
  at: string;
  replicas: ReplicaSight[];
  lanes: { name: string; queued: number; running: number; waitSeconds: number | null }[];
  ladder: { rung: number; name: string; heldSeconds: number; changes: number; load: number[] | null };
  firstText: Percentiles;
  betweenTokens: Percentiles;
  openStreams: number;
  flagged: { stage: "input" | "output"; category: string; count: number }[];
  point: Point | null;
}

export interface FleetPast {
  everySeconds: number;
  points: Point[];
  steps: { at: string; rung: number; name: string }[];
}

export interface PlanBudget {
  name: string;
  unit: string;
  limit: number;
  refillSeconds: number;
}

export interface Plan {
  name: string;
  lane: string;
  windowTokens: number;
  answerTokens: number;
  budgets: PlanBudget[];
  repliesRunning: number;
  openStreams: number;
  waitSeconds: number;
  models: string[];
  ladder: boolean;
  abandonSeconds: number | null;
  retentionDays: number | null;
  mostPerDay: Record<string, number | null>;
}

export interface User {
  id: string;
  name: string;
  role: "admin" | "user";
  plan: string;
  disabled: boolean;
  createdAt: string;
}

export interface Prompt {
  version: string;
  text: string;
  createdAt: string;
  conversations: number;
  isWhole: boolean;
}

export interface Rollout {
  version: string;
  share: number;
  base: string;
}

export interface Deletion {
  owner: string;
  target: string | null;
  kind: string;
  requestedAt: string;
  doneAt: string | null;
  looks: number;
  reached: Record<string, { how: string; at: string }>;
}
