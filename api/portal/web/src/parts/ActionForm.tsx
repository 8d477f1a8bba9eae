import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { text } from "../text";
import { Dialog, showDialog } from "./Dialog";
import { AreaField, TextField } from "./Field";
import { InputOf } from "./FormField";
import type { FormField } from "./FormField";
import { tell } from "./notice";
import { ProblemText } from "./ProblemText";
import { useSending } from "./sending";

/** Given is what the operator has filled in. */
export interface Given {
  reason: string;
  /** The values of the fields, by name; "on" for a ticked box. */
  values: Record<string, string>;
  /** The Idempotency-Key: the same while it is not known whether the server has acted. */
  key: string;
}

/** ActionOptions describe the question before an action. */
export interface ActionOptions {
  title: string;
  /** What the button says; it names the action. */
  button: string;
  body?: ComponentChildren;
  /** Warnings as the API gives them. */
  warnings?: string[];
  /** Whether the form asks for a reason. */
  reason: "required" | "optional" | "none";
  /** The most characters of the reason; 2000 when absent. */
  reasonMax?: number;
  /** A name that must be typed, for what cannot be undone. */
  confirmName?: string;
  danger?: boolean;
  fields?: FormField[];
  /** Sends it and returns what to tell. */
  send: (given: Given) => Promise<ComponentChildren>;
  /** Runs after the action: reads the page again. */
  done?: () => void;
}

/** askAction asks for a reason and a confirmation, and sends the action. */
export function askAction(options: ActionOptions): void {
  showDialog((close) => <ActionForm options={options} close={close} />);
}

function ActionForm({ options, close }: { options: ActionOptions; close: () => void }) {
  const { busy, problem, run } = useSending();
  const [wrongName, setWrongName] = useState(false);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const values: Record<string, string> = {};
    for (const [name, value] of new FormData(event.currentTarget)) if (typeof value === "string") values[name] = value.trim();
    if (options.confirmName && values["confirm-name"] !== options.confirmName) {
      setWrongName(true);
      return;
    }
    await run(async (key) => {
      const message = await options.send({ reason: values["reason"] ?? "", values, key });
      close();
      tell(message ?? text.action.sent);
      options.done?.();
    });
  }

  return (
    <Dialog title={options.title} close={close}>
      <form onSubmit={(e) => void submit(e)} class="stack">
        {options.body && <div>{options.body}</div>}
        <Warnings warnings={options.warnings} />
        {options.fields?.map((f) => <InputOf key={f.name} field={f} />)}
        {options.reason !== "none" && (
          <AreaField name="reason" rows={3} maxLength={options.reasonMax ?? 2000} required={options.reason === "required"}
            label={options.reason === "required" ? text.action.reasonRequired : text.action.reason} help={text.action.reasonHelp} />
        )}
        {options.confirmName && (
          <TextField name="confirm-name" label={text.action.confirmName(options.confirmName)} autoComplete="off" required
            wrong={wrongName ? text.action.confirmWrong(options.confirmName) : undefined} />
        )}
        <ProblemText problem={problem} />
        <div class="buttons">
          <button type="submit" class={options.danger ? "danger" : "primary"} aria-disabled={busy}>{busy ? text.action.sending : options.button}</button>
          <button type="button" onClick={close}>{text.cancel}</button>
        </div>
      </form>
    </Dialog>
  );
}

/** Warnings lists what the API warns of. */
export function Warnings({ warnings }: { warnings: string[] | undefined }) {
  if (!warnings || warnings.length === 0) return null;
  return (
    <section class="warnings" aria-label={text.action.warnings}>
      <p><strong><span aria-hidden="true">▲ </span>{text.action.warnings}</strong></p>
      <ul>{warnings.map((w, i) => <li key={i}>{w}</li>)}</ul>
    </section>
  );
}
