import { useEffect, useRef, useState } from "preact/hooks";
import { bounds } from "../api/bounds";
import type { Bound } from "../api/bounds";
import { ProblemError } from "../api/problem";
import type { Problem } from "../api/problem";
import { hrefOf, navigate } from "../router";
import { text, words } from "../text";
import { AreaField } from "./Field";
import { InputOf } from "./FormField";
import type { FormField } from "./FormField";
import { To } from "./Link";
import { tell } from "./notice";
import { ProblemText } from "./ProblemText";
import { useSending } from "./sending";
import { pathOf, valueAt, without, withValue } from "./settings";

/** SpecField is a field of a request that the form asks for by itself. */
export interface SpecField {
  path: string;
  required?: boolean;
  /** A text of several lines. */
  area?: boolean;
  /** The choices. */
  options?: readonly string[];
}

interface Props {
  /** The request of the API, whose bounds hold. */
  request: keyof typeof bounds;
  fields: readonly SpecField[];
  /** What is edited; empty for a new one. */
  of: { name?: string; spec?: object };
  button: string;
  /** Sends the body, with an Idempotency-Key. It returns the path of the page that shows what was stored. */
  send: (body: unknown, key: string) => Promise<string>;
  /** The page that the form was opened from. */
  back: string;
}

/** The name of the field with all other settings. */
const restName = "rest";

/**
 * SpecForm asks for a name and settings: what is common in fields of its own, all else as JSON. The
 * bounds are those of the API, and what the API refuses is shown at its field.
 */
export function SpecForm({ request, fields, of, button, send, back }: Props) {
  const { busy, problem, run } = useSending();
  const form = useRef<HTMLFormElement>(null);
  const [other] = useState(() => restOf(of, fields));
  const known = bounds[request] as Record<string, Bound>;
  const { wrong, left } = sortErrors(problem, fields);
  useEffect(() => {
    const first = form.current?.querySelector<HTMLElement>("[aria-invalid]");
    const hidden = first?.closest("details");
    if (hidden) hidden.open = true;
    first?.focus();
  }, [problem]);

  function submit(event: Event): void {
    event.preventDefault();
    if (!form.current) return;
    const values = new FormData(form.current);
    void run(async (key) => {
      const shown = await send(bodyOf(values, fields, known), key);
      tell(text.spec.saved);
      navigate(hrefOf(shown));
    });
  }
  return (
    <form ref={form} class="form stack" onSubmit={submit}>
      {fields.map((f) => <InputOf key={f.path} field={inputOf(f, known[f.path], valueAt(of, f.path), wrong[f.path])} />)}
      <details>
        <summary>{text.spec.more}</summary>
        <p class="help">{text.spec.moreHelp}</p>
        <AreaField name={restName} label={text.spec.json} rows={12} maxLength={200_000} class="code" spellcheck={false} defaultValue={other} wrong={wrong[restName]} />
      </details>
      <ProblemText problem={left} />
      <div class="buttons">
        <button type="submit" class="primary" aria-disabled={busy}>{busy ? text.action.sending : button}</button>
        <To path={back} class="button">{text.cancel}</To>
      </div>
    </form>
  );
}

/** inputOf returns the input for a field: its kind and bounds are those of the API. */
function inputOf(f: SpecField, bound: Bound | undefined, value: unknown, wrong: string | undefined): FormField {
  const texts = text.specFields[f.path];
  const common = { name: f.path, label: texts?.label ?? words(f.path.split(".").at(-1)), help: texts?.help, required: f.required, wrong };
  if (f.options) return { ...common, kind: "select", value: scalar(value), options: ["", ...f.options].map((o) => ({ value: o, label: o || text.spec.byDefault })) };
  if (bound?.type === "boolean") return { ...common, kind: "check", value: value === true ? "on" : "" };
  if (bound?.type === "array") return { ...common, kind: "area", rows: 3, value: Array.isArray(value) ? value.join("\n") : "" };
  if (bound?.type === "integer") return { ...common, kind: "number", min: bound.min, max: bound.max, value: scalar(value) };
  return { ...common, kind: f.area ? "area" : "text", rows: 6, max: bound?.maxLength, value: scalar(value) };
}

const scalar = (value: unknown) => (typeof value === "string" || typeof value === "number" ? String(value) : "");

/** restOf returns the settings that have no field, as JSON. */
function restOf(of: { name?: string; spec?: object }, fields: readonly SpecField[]): string {
  let rest: unknown = { spec: of.spec ?? {} };
  for (const f of fields) rest = without(rest, f.path);
  return JSON.stringify(valueAt(rest, "spec") ?? {}, null, 2);
}

/** bodyOf returns the request. What is left empty is left out. */
function bodyOf(values: FormData, fields: readonly SpecField[], known: Record<string, Bound>): unknown {
  const textOf = (name: string) => { const value = values.get(name); return typeof value === "string" ? value.replaceAll("\r\n", "\n") : ""; };
  let body: unknown = { name: "", spec: parseRest(textOf(restName)) };
  for (const f of fields) {
    if (f.path.startsWith("spec.") && valueAt(body, f.path) !== undefined) throw refusal(restName, text.spec.twice(text.specFields[f.path]?.label ?? f.path));
    const raw = textOf(f.path);
    const type = known[f.path]?.type;
    const lines = raw.split("\n").map((line) => line.trim()).filter(Boolean);
    const trimmed = f.area ? raw : raw.trim();
    const value = type === "boolean" ? raw === "on" || undefined : type === "array" ? (lines.length > 0 ? lines : undefined) : trimmed === "" ? undefined : type === "integer" ? Number(trimmed) : trimmed;
    if (value !== undefined) body = withValue(body, f.path, value);
  }
  return body;
}

function parseRest(json: string): object {
  let parsed: unknown;
  try {
    parsed = JSON.parse(json.trim() || "{}");
  } catch (error) {
    throw refusal(restName, `${text.spec.notJson}: ${error instanceof Error ? error.message : ""}`);
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) throw refusal(restName, text.spec.notObject);
  return parsed;
}

/** refusal is a problem that the form has found itself. */
function refusal(name: string, message: string): ProblemError {
  return new ProblemError({ status: 422, title: text.spec.correct, errors: [{ location: name, message }] });
}

/** sortErrors gives each field what is wrong with it. What concerns no field is left. */
function sortErrors(problem: Problem | undefined, fields: readonly SpecField[]): { wrong: Record<string, string>; left: Problem | undefined } {
  const wrong: Record<string, string> = {};
  if (!problem?.errors) return { wrong, left: problem };
  const others: NonNullable<Problem["errors"]> = [];
  for (const error of problem.errors) {
    const path = pathOf(error.location ?? "");
    const field = fields.find((f) => path === f.path || path.startsWith(f.path + "."))?.path ?? (path === restName || path.startsWith("spec") ? restName : undefined);
    if (!field) {
      others.push(error);
      continue;
    }
    const message = field === restName && path !== restName ? `${path}: ${error.message ?? ""}` : error.message ?? "";
    wrong[field] = wrong[field] ? `${wrong[field]}; ${message}` : message;
  }
  return { wrong, left: { ...problem, errors: others, detail: others.length > 0 ? problem.detail : text.spec.atFields } };
}
