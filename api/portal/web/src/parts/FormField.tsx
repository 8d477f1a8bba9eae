import { AreaField, CheckField, SelectField, TextField } from "./Field";

/** FormField is one thing that a form asks for. */
export interface FormField {
  name: string;
  label: string;
  kind: "text" | "number" | "check" | "area" | "select";
  help?: string;
  required?: boolean;
  /** The most characters of a text, or the largest number. */
  max?: number;
  /** The smallest number; 0 when absent. */
  min?: number;
  /** The lines of an area that are seen at once; 16 when absent. */
  rows?: number;
  /** What it holds at first; "on" for a ticked box. */
  value?: string;
  /** The choices of a select. */
  options?: { value: string; label: string }[];
  /** What is wrong with what was filled in. */
  wrong?: string;
}

/** InputOf is the input of a field, with its label and help. */
export function InputOf({ field: f }: { field: FormField }) {
  const common = { name: f.name, label: f.label, required: f.required, help: f.help, wrong: f.wrong };
  if (f.kind === "check") return <CheckField {...common} defaultChecked={f.value === "on"} />;
  if (f.kind === "area") return <AreaField {...common} rows={f.rows ?? 16} maxLength={f.max} defaultValue={f.value} spellcheck={false} class="code" />;
  if (f.kind === "select") return <SelectField {...common}>{f.options?.map((o) => <option key={o.value} value={o.value} selected={o.value === f.value}>{o.label}</option>)}</SelectField>;
  return <TextField {...common} defaultValue={f.value} type={f.kind} min={f.min ?? 0} max={f.max} maxLength={f.kind === "text" ? f.max ?? 200 : undefined} autoComplete="off" />;
}
