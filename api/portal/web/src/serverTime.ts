let offset = 0;
const listeners = new Set<() => void>();

/** onServerTime calls back when the server's clock turns out to differ from what was known. */
export function onServerTime(listener: () => void): void {
  listeners.add(listener);
}

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
  for (const listener of listeners) listener();
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
