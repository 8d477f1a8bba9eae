import type { ComponentChildren } from "preact";

/** Column is one column of a table. The one with header names the row. */
export interface Column<R> {
  label: string;
  cell: (row: R) => ComponentChildren;
  header?: boolean;
  number?: boolean;
}

interface Props<R> {
  caption: string;
  /** Whether the caption is shown; it is always read. */
  captionShown?: boolean;
  columns: Column<R>[];
  rows: R[];
  keyOf: (row: R, index: number) => string;
  busy?: boolean;
  gone?: (row: R) => string | undefined;
  empty?: string;
}

/** Table is a real table. On a narrow screen each row becomes a block; the roles keep it a table. */
export function Table<R>({ caption, captionShown, columns, rows, keyOf, busy, gone, empty }: Props<R>) {
  return (
    <table role="table" aria-busy={busy}>
      <caption class={captionShown ? undefined : "only-read"}>{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">{columns.map((c) => <th key={c.label} role="columnheader" scope="col" class={c.number ? "number" : undefined}>{c.label}</th>)}</tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row, i) => {
          const missing = gone?.(row);
          return (
            <tr key={keyOf(row, i)} role="row" class={missing ? "gone" : undefined} data-id={keyOf(row, i)}>
              {columns.map((c) => {
                const content = <>{c.cell(row)}{c.header && missing && <span class="quiet"> ({missing})</span>}</>;
                return c.header
                  ? <th key={c.label} role="rowheader" scope="row" data-label={c.label}><div>{content}</div></th>
                  : <td key={c.label} role="cell" data-label={c.label} class={c.number ? "number" : undefined}><div>{content}</div></td>;
              })}
            </tr>
          );
        })}
        {rows.length === 0 && empty && !busy && <tr role="row"><td role="cell" colSpan={columns.length} class="empty">{empty}</td></tr>}
      </tbody>
    </table>
  );
}

/** moveRow puts the focus on the main link of the next (1) or previous (-1) row of a table. */
export function moveRow(step: 1 | -1): void {
  const links = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  if (links.length === 0) return;
  const row = document.activeElement?.closest("tr");
  const at = row ? links.findIndex((l) => l.closest("tr") === row) : -1;
  const next = at < 0 ? (step === 1 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + step));
  links[next]?.focus();
}
