import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { text } from "../text";

const notice = signal<ComponentChildren>(undefined);

let toldAt = 0;

/** ownTime is how long after a message the page may change that it is told for, in milliseconds. */
const ownTime = 1000;

/** tell shows what was done, and has a screen reader say it. */
export function tell(message: ComponentChildren): void {
  notice.value = message;
  toldAt = performance.now();
}

/** leaveNotice takes away what was told on the page before. */
export function leaveNotice(): void {
  if (performance.now() - toldAt > ownTime) notice.value = undefined;
}

/** Notice shows the last message until it is dismissed. */
export function Notice() {
  return (
    <div role="status" class={notice.value ? "notice" : "notice notice--empty"}>
      {notice.value && <><span>{notice.value}</span> <button type="button" class="plain" aria-label={text.dismiss} onClick={() => { notice.value = undefined; }}>✕</button></>}
    </div>
  );
}
