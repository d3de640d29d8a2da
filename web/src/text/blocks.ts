/**
 * Cuts growing markdown into blocks that will not change any more, so that only the last block is
 * rendered again while an answer streams in. Pure; joined with blank lines the blocks are the text.
 */

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const LIST_ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:\s*\S+/;

export interface Blocks {
  blocks: string[];
  definitions: string; // link definitions: they hold for every block
}

export function splitBlocks(text: string): Blocks {
  const blocks: string[] = [];
  const definitions: string[] = [];
  let lines: string[] = [];
  let fence: string | null = null;
  let math = false;
  let blank = false;
  const close = () => {
    while (lines.length > 0 && lines[lines.length - 1]?.trim() === "") lines.pop();
    if (lines.length > 0) blocks.push(lines.join("\n"));
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (fence === null && !math && line.trim() === "") {
      blank = true;
      if (lines.length > 0) lines.push(line);
      continue;
    }
    if (blank && !continues(lines[0], line)) close();
    blank = false;
    lines.push(line);
    if (math) {
      if (closesMath(line)) math = false;
      continue;
    }
    fence = fenceAfter(fence, line);
    if (fence === null) {
      math = opensMath(line);
      if (DEFINITION.test(line)) definitions.push(line);
    }
  }
  close();
  return { blocks, definitions: definitions.join("\n") };
}

/**
 * `splitBlocks` for a text that grows: what came before the last two blocks is not looked at again. Two, because
 * half a line may close a block that the whole line goes on with.
 */
export class GrowingBlocks {
  private text = "";
  private settledChars = 0; // up to where the third block from the end begins
  private blocks: string[] = [];
  private definitions: string[] = [];

  split(text: string): Blocks {
    if (!text.startsWith(this.text.slice(0, this.settledChars))) this.begin();
    this.text = text;
    const open = splitBlocks(text.slice(this.settledChars));
    while (open.blocks.length > 2) this.settle(open);
    const definitions = [...this.definitions, ...(open.definitions === "" ? [] : [open.definitions])].join("\n");
    return { blocks: [...this.blocks, ...open.blocks], definitions };
  }

  private begin(): void {
    this.settledChars = 0;
    this.blocks = [];
    this.definitions = [];
  }

  private settle(open: Blocks): void {
    const block = open.blocks.shift()!;
    const at = this.text.indexOf(open.blocks[0]!, this.text.indexOf(block, this.settledChars) + block.length);
    this.settledChars = at;
    this.blocks.push(block);
    const own = splitBlocks(block).definitions;
    if (own === "") return;
    this.definitions.push(own);
    open.definitions = open.definitions.split("\n").slice(own.split("\n").length).join("\n");
  }
}

// What is indented, or the next item, still belongs to the list (or to indented code) above.
function continues(first: string | undefined, line: string): boolean {
  if (first === undefined) return false;
  if (LIST_ITEM.test(first)) return LIST_ITEM.test(line) || /^\s/.test(line);
  return /^ {4}|^\t/.test(first) && /^ {4}|^\t/.test(line);
}

function fenceAfter(open: string | null, line: string): string | null {
  const mark = FENCE.exec(open === null ? line : line.trimStart())?.[1];
  if (open === null) {
    if (mark !== undefined && !(mark[0] === "`" && line.slice(line.indexOf(mark) + mark.length).includes("`"))) {
      return mark;
    }
    const inList = /^\s*(?:[-*+]|\d{1,9}[.)])?\s*(`{3,}|~{3,})[^`]*$/.exec(line)?.[1];
    return inList ?? null;
  }
  if (mark === undefined || mark[0] !== open[0] || mark.length < open.length) return open;
  return line.trim() === mark ? null : open;
}

function opensMath(line: string): boolean {
  const text = line.trim();
  if (text.startsWith("\\[")) return !text.includes("\\]");
  return text.startsWith("$$") && !text.slice(2).includes("$$");
}

function closesMath(line: string): boolean {
  return line.includes("$$") || line.includes("\\]");
}

/** Closes emphasis and code marks that the stream has opened but not closed yet. */
export function healTail(block: string): string {
  if (FENCE.test(block)) return block;
  const ticks = block.split("`").length - 1;
  if (ticks % 2 === 1) return `${block}\``;
  const plain = block.replace(/`[^`]*`/g, "");
  const stars = plain.split("**").length - 1;
  if (stars % 2 === 0) return block;
  return /\*\*\s*$/.test(block) ? block.replace(/\*\*\s*$/, "") : `${block.trimEnd()}**`;
}
