import { useSyncExternalStore } from "react";
import { onServerTime, serverNow } from "../serverTime";

let now = Date.now();
const listeners = new Set<() => void>();

function move(): void {
  now = serverNow();
  for (const listener of listeners) listener();
}

/** startClock lets ages on the page grow. */
export function startClock(): void {
  onServerTime(move);
  setInterval(() => { if (!document.hidden) move(); }, 10_000);
  document.addEventListener("visibilitychange", move);
}

/** useNow returns the server's time in milliseconds, which moves every ten seconds. */
export function useNow(): number {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, () => now);
}
