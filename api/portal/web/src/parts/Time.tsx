import { now, roughly, serverNow, staleAfter } from "../clock";
import { text } from "../text";

interface Props {
  at: string | undefined | null;
  /** Mark it when it is older than five minutes: for observations, not for events. */
  stale?: boolean;
}

/** Time shows an instant as its age, with the whole instant as its title. */
export function Time({ at, stale }: Props) {
  const instant = at ? Date.parse(at) : NaN;
  if (Number.isNaN(instant)) return <span class="quiet">{text.time.never}</span>;
  const age = Math.max(now.value, serverNow()) - instant;
  const isStale = stale === true && age > staleAfter;
  return (
    <time dateTime={at ?? ""} title={new Date(instant).toISOString()} class={isStale ? "time time--stale" : "time"}>
      {ageText(age)}
      {isStale && <span class="stale-mark" title={text.time.staleTitle}> ⚠ {text.time.stale}</span>}
    </time>
  );
}

function ageText(age: number): string {
  if (Math.abs(age) < 2000) return text.time.now;
  return age > 0 ? text.time.ago(roughly(age / 1000)) : text.time.ahead(roughly(-age / 1000));
}
