/** Json shows a value of any shape as text, behind a disclosure. */
export function Json({ value, label }: { value: unknown; label: string }) {
  if (value === undefined || value === null || (typeof value === "object" && Object.keys(value).length === 0)) return null;
  return <details><summary>{label}</summary><pre>{typeof value === "string" ? value : JSON.stringify(value, null, 2)}</pre></details>;
}
