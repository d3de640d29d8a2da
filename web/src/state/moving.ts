/** Everything out as one archive, and conversations in from another: how far both are. They go on when their box is closed. */
import { signal } from "@preact/signals";
import { call, problemOf, Refused, Unreachable } from "../api";
import { ZipCount } from "../text/zipcount";
import type { ImportReport } from "../wire";
import { refreshList } from "./conversations";

const POLL_MS = 1_000;
const LONGEST_MS = 30_000; // between two looks at an import whose server does not answer

export interface Exporting {
  conversations: number;
  total: number; // 0: not known yet
  bytes: number;
}

export const exporting = signal<Exporting | null>(null);
/** From 0 to 1 while the file is on its way. */
export const uploading = signal<number | null>(null);
export const lastImport = signal<ImportReport | null>(null);

/** The archive of everything, when it has come. Needs the password again, or a sign-in of the last minutes. */
export async function fetchExport(password: string): Promise<Blob> {
  exporting.value = { conversations: 0, total: 0, bytes: 0 };
  try {
    const response = await fetch("/v1/me/export", {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(password === "" ? {} : { password }),
    }).catch(() => {
      throw new Unreachable("The server cannot be reached.");
    });
    if (!response.ok || response.body === null) throw new Refused(await problemOf(response));
    const total = Number(response.headers.get("X-Total-Conversations")) || 0;
    return await collected(response.body, total);
  } finally {
    exporting.value = null;
  }
}

async function collected(body: ReadableStream<Uint8Array>, total: number): Promise<Blob> {
  const parts: BlobPart[] = [];
  const count = new ZipCount();
  let bytes = 0;
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts, { type: "application/zip" });
    parts.push(value as Uint8Array<ArrayBuffer>);
    bytes += value.length;
    count.take(value);
    exporting.value = { conversations: Math.min(total, Math.floor(count.files / 2)), total, bytes }; // two files each
  }
}

/** Sends a file and follows its import to the end. */
export async function importFile(file: File): Promise<void> {
  uploading.value = 0;
  try {
    lastImport.value = await upload(file);
  } finally {
    uploading.value = null;
  }
  await followImport();
}

/** Looks how far the newest import is, until it has ended; nothing if there is none. */
export async function followImport(): Promise<void> {
  if (lastImport.value === null) {
    const newest = (await call<{ items: ImportReport[] }>("GET", "/v1/imports?limit=1")).items[0];
    if (newest === undefined || hasEnded(newest)) return;
    lastImport.value = newest;
  }
  for (let waitMs = POLL_MS; lastImport.value !== null && !hasEnded(lastImport.value); ) {
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    try {
      lastImport.value = await call<ImportReport>("GET", `/v1/imports/${lastImport.value.id}`);
      waitMs = POLL_MS;
    } catch (error) {
      if (error instanceof Refused && error.problem.status < 500) throw error;
      waitMs = Math.min(LONGEST_MS, 2 * waitMs);
    }
  }
  await refreshList();
}

export async function cancelImport(): Promise<void> {
  const found = lastImport.value;
  if (found !== null) lastImport.value = await call<ImportReport>("DELETE", `/v1/imports/${found.id}`);
}

export function hasEnded(report: ImportReport): boolean {
  return report.state !== "waiting" && report.state !== "running";
}

// fetch does not tell how much of a body has been sent.
function upload(file: File): Promise<ImportReport> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/v1/imports");
    request.setRequestHeader("Content-Type", file.name.toLowerCase().endsWith(".zip") ? "application/zip" : "application/json");
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) uploading.value = event.loaded / event.total;
    });
    request.addEventListener("error", () => reject(new Unreachable("The server cannot be reached.")));
    request.addEventListener("load", () => {
      const answer = new Response(request.responseText, { status: request.status });
      if (answer.ok) resolve(JSON.parse(request.responseText) as ImportReport);
      else void problemOf(answer).then((problem) => reject(new Refused(problem)));
    });
    request.send(file);
  });
}
