import { useEffect, useRef } from "preact/hooks";

/** useRepeated reads again at an interval while the tab is shown: for what changes without an event. */
export function useRepeated(milliseconds: number, read: () => Promise<void>): void {
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) void latest.current(); }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}
