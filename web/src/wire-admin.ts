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
  costs: { perHour: number; perMillion: number | null; targetPerMillion: number | null } | null;
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

export interface PlanSlider {
  name: string;
  value: number;
  unit: string;
  low: number;
  high: number;
  logarithmic: boolean;
}

export interface PlanFigure {
  value: number | null;
  unit: string;
  formula: string | null;
  by: string;
}

export interface PlanCurve {
  over: string;
  figures: string[];
  points: (number | null)[][];
}

/** What a fleet comes to, by the planner's own names. */
export interface PlanShown {
  sliders: PlanSlider[];
  choices: Record<string, string[]>;
  figures: Record<string, PlanFigure>;
  binds: Record<string, string>;
  curves: PlanCurve[];
  timing: string;
  beside: { timing: string; accelerators: number | null };
  notes: string[];
}

export interface PlanWish {
  values: Record<string, number>;
  words: Record<string, string>;
}

export interface TrialGroup {
  name: string;
  messages: number;
  timedOut: number;
  refused: number;
  small: number;
  short: number;
  waitP50Seconds: number;
  waitP95Seconds: number;
}

/** A row: seconds since the beginning, asked and begun a second, waiting, rung, share of the accelerators that work. */
export type TrialPoint = [number, number, number, number, number, number];

export interface TrialTold {
  seconds: number;
  warmSeconds: number;
  accelerators: number;
  inUse: number;
  rungChanges: number;
  groups: TrialGroup[];
  points: TrialPoint[];
}
