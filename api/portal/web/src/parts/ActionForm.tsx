import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { newKey } from "../api/client";
import { asProblem, isFinal } from "../api/problem";
import type { Problem } from "../api/problem";
import { text } from "../text";
import { Dialog, showDialog } from "./Dialog";
import { AreaField, CheckField, SelectField, TextField } from "./Field";
import { tell } from "./notice";
import { ProblemText } from "./ProblemText";

/** Given is what the operator has filled in. */
export interface Given {
  reason: string;
  /** The values of the fields, by name; "on" for a ticked box. */
  values: Record<string, string>;
  /** The Idempotency-Key: the same while it is not known whether the server has acted. */
  key: string;
}

/** ActionField is one more thing that the form asks for. */
export interface ActionField {
  name: string;
  label: string;
  kind: "text" | "number" | "check" | "area" | "select";
  help?: string;
  required?: boolean;
  /** The most characters of a text, or the largest number. */
  max?: number;
  /** What it holds at first. */
  value?: string;
  /** The choices of a select. */
  options?: { value: string; label: string }[];
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
  fields?: ActionField[];
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
  const key = useRef(newKey());
  const sending = useRef(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const [wrongName, setWrongName] = useState(false);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (sending.current || !(event.currentTarget instanceof HTMLFormElement)) return;
    const values: Record<string, string> = {};
    for (const [name, value] of new FormData(event.currentTarget)) if (typeof value === "string") values[name] = value.trim();
    if (options.confirmName && values["confirm-name"] !== options.confirmName) {
      setWrongName(true);
      return;
    }
    sending.current = true;
    setBusy(true);
    setProblem(undefined);
    try {
      const message = await options.send({ reason: values["reason"] ?? "", values, key: key.current });
      close();
      tell(message ?? text.action.sent);
      options.done?.();
    } catch (error) {
      const refused = asProblem(error);
      if (isFinal(refused)) key.current = newKey(); // a corrected request is another one
      setProblem(refused);
    } finally {
      sending.current = false;
      setBusy(false);
    }
  }

  return (
    <Dialog title={options.title} close={close}>
      <form onSubmit={(e) => void submit(e)} class="stack">
        {options.body && <div>{options.body}</div>}
        <Warnings warnings={options.warnings} />
        {options.fields?.map((f) => <FieldOf key={f.name} field={f} />)}
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

function FieldOf({ field: f }: { field: ActionField }) {
  const common = { name: f.name, label: f.label, required: f.required };
  if (f.kind === "check") return <CheckField {...common} />;
  if (f.kind === "area") return <AreaField {...common} help={f.help} rows={16} maxLength={f.max} defaultValue={f.value} spellcheck={false} class="code" />;
  if (f.kind === "select") return <SelectField {...common} help={f.help}>{f.options?.map((o) => <option key={o.value} value={o.value}>{o.label}</option>)}</SelectField>;
  return <TextField {...common} help={f.help} defaultValue={f.value} type={f.kind} min={0} max={f.max} maxLength={f.kind === "text" ? f.max ?? 200 : undefined} />;
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
