/** How many files have come of a zip archive that is still on its way: each begins with the same four bytes. */

const MARK = [0x50, 0x4b, 0x03, 0x04]; // "PK", 3, 4: by chance once in four gigabytes of packed text

export class ZipCount {
  files = 0;
  private matched = 0; // bytes of a mark at the end of what has come

  take(bytes: Uint8Array): void {
    for (const byte of bytes) {
      if (byte !== MARK[this.matched]) this.matched = 0;
      if (byte === MARK[this.matched]) this.matched++;
      if (this.matched < MARK.length) continue;
      this.files++;
      this.matched = 0;
    }
  }
}
