import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { session } from "../session";
import { text } from "../text";
import { TextField } from "./Field";
import { Heading } from "./Facts";

/** The reasons that were given in this tab, by who gave them and the project. They are stored nowhere. */
const reasons = signal<ReadonlyMap<string, string>>(new Map());

const keyOf = (project: string) => `${session.value?.principal.id ?? ""} ${project}`;

/** reasonHeader is what goes with each call on a project of a customer: the reason in UTF-8. */
export function reasonHeader(project: string): { "Slipway-Reason": string } {
  return headerOf(reasons.value.get(keyOf(project)) ?? "");
}

/** headerOf makes the header of a reason: a header takes bytes, not characters. */
export function headerOf(reason: string): { "Slipway-Reason": string } {
  return { "Slipway-Reason": Array.from(new TextEncoder().encode(reason), (b) => String.fromCharCode(b)).join("") };
}

function setReason(project: string, reason: string | undefined): void {
  const next = new Map(reasons.value);
  if (reason) next.set(keyOf(project), reason);
  else next.delete(keyOf(project));
  reasons.value = next;
}

/**
 * ReasonGate asks why an operator looks at a project of a customer before anything of it is read. The
 * reason holds for this project until the tab is closed or the operator ends it.
 */
export function ReasonGate({ project, children }: { project: string; children: ComponentChildren }) {
  const reason = reasons.value.get(keyOf(project));
  if (reason) {
    return (
      <>
        <p class="warnings"><span aria-hidden="true">▲ </span>{text.reason.shown}: <strong>{reason}</strong>{" "}
          <button type="button" onClick={() => setReason(project, undefined)}>{text.reason.change}</button></p>
        {children}
      </>
    );
  }
  const submit = (event: Event) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const given = new FormData(event.currentTarget).get("reason");
    if (typeof given !== "string" || given.trim().length < 3) return;
    setReason(project, given.trim());
    document.getElementById("content")?.focus(); // the form that had the focus goes
  };
  return (
    <>
      <Heading title={text.reason.title} />
      <p>{text.reason.intro}</p>
      <form class="form stack" onSubmit={submit}>
        <TextField name="reason" label={text.action.reasonRequired} help={text.reason.help} required minLength={3} maxLength={250} pattern=".*\S.*\S.*\S.*" title={text.reason.help} autoComplete="off" />
        <div class="buttons"><button type="submit" class="primary">{text.reason.go}</button></div>
      </form>
    </>
  );
}
