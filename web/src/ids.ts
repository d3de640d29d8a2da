/** Turn ids made by the page before anything is sent, so that a repeated send is the same turn. */

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"; // Crockford's base 32: sorts as it counts

/** `m_` and 26 characters: 10 of time in milliseconds, 16 of chance. */
export function newTurnId(nowMs: number = Date.now()): string {
  return `m_${timePart(nowMs)}${chancePart()}`;
}

function timePart(nowMs: number): string {
  let rest = nowMs;
  let text = "";
  for (let i = 0; i < 10; i++) {
    text = ALPHABET.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

function chancePart(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => ALPHABET.charAt(byte % 32)).join("");
}
