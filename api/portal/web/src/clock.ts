import { signal } from "@preact/signals";
import { onServerTime, serverNow } from "./serverTime";

export { duration, roughly, serverNow } from "./serverTime";

/** now is the server's time in milliseconds, and moves every ten seconds. */
export const now = signal(Date.now());

/** staleAfter is the age in milliseconds from which an observation no longer counts as current. */
export const staleAfter = 5 * 60 * 1000;

/** startClock lets ages on the page grow. */
export function startClock(): void {
  const move = () => { now.value = serverNow(); };
  onServerTime(move);
  setInterval(() => { if (!document.hidden) move(); }, 10_000);
  document.addEventListener("visibilitychange", move);
}
