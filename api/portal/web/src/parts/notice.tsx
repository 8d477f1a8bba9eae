import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { text } from "../text";

const notice = signal<ComponentChildren>(undefined);

/** tell shows what was done, and has a screen reader say it. */
export function tell(message: ComponentChildren): void {
  notice.value = message;
}

/** Notice shows the last message until it is dismissed. */
export function Notice() {
  return (
    <div role="status" class={notice.value ? "notice" : "notice notice--empty"}>
      {notice.value && <><span>{notice.value}</span> <button type="button" class="plain" aria-label={text.dismiss} onClick={() => { notice.value = undefined; }}>✕</button></>}
    </div>
  );
}
