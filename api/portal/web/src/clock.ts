import { signal } from "@preact/signals";

let offset = 0;

/** now is the server's time in milliseconds, and moves every ten seconds. */
export const now = signal(Date.now());

/** staleAfter is the age in milliseconds from which an observation no longer counts as current. */
export const staleAfter = 5 * 60 * 1000;

/**
 * setServerTime takes the Date header of an answer, so that ages are right on a machine whose clock is
 * wrong. The header has whole seconds.
 */
export function setServerTime(header: string | null): void {
  const server = header ? Date.parse(header) : NaN;
  if (Number.isNaN(server)) return;
  const difference = server - Date.now();
  if (Math.abs(difference - offset) < 2000) return;
  offset = difference;
  now.value = Date.now() + offset;
}

/** startClock lets ages on the page grow. */
export function startClock(): void {
  setInterval(() => { if (!document.hidden) now.value = Date.now() + offset; }, 10_000);
  document.addEventListener("visibilitychange", () => { now.value = Date.now() + offset; });
}

/** serverNow returns the server's time in milliseconds. */
export function serverNow(): number {
  return Date.now() + offset;
}

/** roughly writes an age: to the minute below an hour, in two units above. */
export function roughly(seconds: number): string {
  return duration(seconds >= 60 && seconds < 3600 ? Math.floor(seconds / 60) * 60 : seconds);
}

const units: [string, number][] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** duration writes a length of time in its two largest units. */
export function duration(seconds: number): string {
  let rest = Math.max(0, Math.round(seconds));
  const parts: string[] = [];
  for (const [name, size] of units) {
    const count = Math.floor(rest / size);
    if (count > 0) parts.push(`${count} ${name}`);
    else if (parts.length > 0) break;
    rest -= count * size;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0 s";
}
