/**
 * Which messages of the tree are on screen. Every fork remembers the way last taken through it,
 * so a branch that is left and chosen again comes back with all its turns. Pure.
 */

export interface Node {
  id: string;
  parentId: string | null;
  seq: number;
}

export type Choices = Readonly<Record<string, string>>; // parent id, or ROOT -> chosen child

export const ROOT = "root";

/** Siblings of one parent, oldest first. */
export function childrenOf<N extends Node>(nodes: readonly N[]): Map<string, N[]> {
  const children = new Map<string, N[]>();
  for (const node of nodes) {
    const key = node.parentId ?? ROOT;
    const list = children.get(key);
    if (list === undefined) children.set(key, [node]);
    else list.push(node);
  }
  for (const list of children.values()) list.sort((a, b) => a.seq - b.seq || (a.id < b.id ? -1 : 1));
  return children;
}

/**
 * The branch on screen, oldest first. Starts from the newest leaf that the choices lead to and
 * walks up, so it is right also when only the newest pages of the tree are loaded.
 */
export function pathOf<N extends Node>(
  nodes: readonly N[],
  choices: Choices,
  head: string | null,
): N[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const children = childrenOf(nodes);
  const headWay = wayUp(byId, head === null ? undefined : byId.get(head));
  const towardsHead = new Map(headWay.map((node) => [node.parentId ?? ROOT, node.id]));
  const start = firstShown(nodes, byId, children, choices, towardsHead);
  if (start === undefined) return [];
  return wayUp(byId, leafBelow(start, children, choices, towardsHead)).reverse();
}

// With the top of the tree not loaded there may be several loose tops: the one with the head wins.
function firstShown<N extends Node>(
  nodes: readonly N[],
  byId: Map<string, N>,
  children: Map<string, N[]>,
  choices: Choices,
  towardsHead: Map<string, string>,
): N | undefined {
  const tops = nodes.filter((node) => node.parentId === null || !byId.has(node.parentId));
  const loose = tops.filter((node) => node.parentId !== null);
  if (loose.length === 0) return choose(ROOT, children, choices, towardsHead);
  const chosen = tops.find((node) => choices[node.parentId ?? ROOT] === node.id);
  const leading = tops.find((node) => towardsHead.get(node.parentId ?? ROOT) === node.id);
  return chosen ?? leading ?? tops.reduce((a, b) => (b.seq > a.seq ? b : a));
}

function choose<N extends Node>(
  parent: string,
  children: Map<string, N[]>,
  choices: Choices,
  towardsHead: Map<string, string>,
): N | undefined {
  const list = children.get(parent);
  if (list === undefined) return undefined;
  return (
    list.find((node) => node.id === choices[parent]) ??
    list.find((node) => node.id === towardsHead.get(parent)) ??
    list[list.length - 1]
  );
}

function leafBelow<N extends Node>(
  start: N,
  children: Map<string, N[]>,
  choices: Choices,
  towardsHead: Map<string, string>,
): N {
  let node = start;
  const seen = new Set<string>(); // a cycle in the data must not hang the page
  while (!seen.has(node.id)) {
    seen.add(node.id);
    const next = choose(node.id, children, choices, towardsHead);
    if (next === undefined) break;
    node = next;
  }
  return node;
}

function wayUp<N extends Node>(byId: Map<string, N>, leaf: N | undefined): N[] {
  const way: N[] = [];
  const seen = new Set<string>();
  for (let node = leaf; node !== undefined && !seen.has(node.id); ) {
    seen.add(node.id);
    way.push(node);
    node = node.parentId === null ? undefined : byId.get(node.parentId);
  }
  return way;
}
