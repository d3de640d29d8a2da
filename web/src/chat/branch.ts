/**
 * A conversation is a tree of which the page knows some branches. Here is which messages lie on a
 * branch, and which of its siblings a message is. Pure.
 */

/** Which of its siblings a message is, oldest first, and the ids of those beside it. */
export interface Version {
  number: number;
  count: number;
  previous: string | null;
  following: string | null;
}

export interface Node {
  id: string;
  parentId: string | null;
  seq: number;
  version?: Version; // as the server told it; none: the server has not named this message yet
}

const ROOT = "";

/** The branch that ends with `leaf`, oldest first, as far up as it is known. */
export function wayTo<N extends Node>(nodes: ReadonlyMap<string, N>, leaf: string | null): N[] {
  const way: N[] = [];
  const seen = new Set<string>(); // a cycle in the data must not hang the page
  for (let id = leaf; id !== null && !seen.has(id); ) {
    seen.add(id);
    const node = nodes.get(id);
    if (node === undefined) break;
    way.push(node);
    id = node.parentId;
  }
  return way.reverse();
}

/** The children of each message that are known, oldest first. */
export function childrenOf<N extends Node>(nodes: ReadonlyMap<string, N>): Map<string, N[]> {
  const children = new Map<string, N[]>();
  for (const node of nodes.values()) {
    const list = children.get(node.parentId ?? ROOT);
    if (list === undefined) children.set(node.parentId ?? ROOT, [node]);
    else list.push(node);
  }
  for (const list of children.values()) list.sort((a, b) => a.seq - b.seq || (a.id < b.id ? -1 : 1));
  return children;
}

/** The newest end of what is known below a message. */
export function newestBelow<N extends Node>(nodes: ReadonlyMap<string, N>, top: string): string {
  const children = childrenOf(nodes);
  const seen = new Set<string>();
  let id = top;
  while (!seen.has(id)) {
    seen.add(id);
    id = children.get(id)?.at(-1)?.id ?? id;
  }
  return id;
}

/**
 * Which sibling a message is. What the server told counts; messages that it has not named yet stand
 * behind all others, in the order in which they were made.
 */
export function versionOf<N extends Node>(node: N, children: ReadonlyMap<string, N[]>): Version {
  const siblings = children.get(node.parentId ?? ROOT) ?? [];
  const told = siblings.filter((one) => one.version !== undefined);
  const untold = siblings.filter((one) => one.version === undefined);
  const count = Math.max(0, ...told.map((one) => one.version!.count));
  const at = (number: number) => told.find((one) => one.version!.number === number)?.id ?? null;
  if (node.version === undefined) {
    const place = untold.findIndex((one) => one.id === node.id);
    return {
      number: count + place + 1,
      count: count + untold.length,
      previous: untold[place - 1]?.id ?? at(count) ?? told.at(-1)?.id ?? null,
      following: untold[place + 1]?.id ?? null,
    };
  }
  const { number, previous, following } = node.version;
  const next = at(number + 1) ?? following ?? (number === count ? (untold[0]?.id ?? null) : null);
  return { number, count: count + untold.length, previous: at(number - 1) ?? previous, following: next };
}
