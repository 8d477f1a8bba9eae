import { duration, roughly } from "../../serverTime";
import { useNow } from "../clock";

/** Time shows how long ago something was, or how far ahead it is. Its title has the exact time. */
export function Time({ at }: { at: string | null | undefined }) {
  const now = useNow();
  const then = Date.parse(at ?? "");
  if (!at || Number.isNaN(then)) return null;
  const seconds = Math.round((now - then) / 1000);
  const text = Math.abs(seconds) < 10 ? "just now" : seconds > 0 ? `${roughly(seconds)} ago` : `in ${roughly(-seconds)}`;
  return <time dateTime={at} title={new Date(then).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC")}>{text}</time>;
}

/** Lasting shows a length of time in words. */
export function Lasting({ seconds }: { seconds: number | undefined }) {
  return seconds === undefined ? null : <>{duration(seconds)}</>;
}

/** Day shows a date and time of UTC in full, for statements that are printed. */
export function Day({ at }: { at: string | null | undefined }) {
  return at ? <time dateTime={at}>{at.slice(0, 16).replace("T", " ")}</time> : null;
}
