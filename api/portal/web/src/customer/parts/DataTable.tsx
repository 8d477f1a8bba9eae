import { Table, Text } from "@mantine/core";
import { useId } from "react";
import type { ReactNode } from "react";

/** Column is one column of a table of rows. */
export interface Column<T> {
  label: string;
  cell: (row: T) => ReactNode;
  /** The cell that names the row. */
  header?: boolean;
  right?: boolean;
}

interface Props<T> {
  caption: string;
  rows: T[];
  keyOf: (row: T) => string;
  columns: Column<T>[];
  empty: string;
}

/** DataTable shows rows. On a narrow page the table moves sideways in its own frame. */
export function DataTable<T>({ caption, rows, keyOf, columns, empty }: Props<T>) {
  const id = useId();
  if (rows.length === 0) return <Text c="dimmed">{empty}</Text>;
  return (
    <div className="scroll" tabIndex={0} role="region" aria-labelledby={id}>
      <Table striped highlightOnHover captionSide="top">
        <caption id={id} className="caption">{caption}</caption>
        <Table.Thead><Table.Tr>{columns.map((c) => <Table.Th key={c.label} scope="col" className={c.right ? "right" : undefined}>{c.label}</Table.Th>)}</Table.Tr></Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={keyOf(row)}>
              {columns.map((c) => c.header
                ? <Table.Th key={c.label} scope="row">{c.cell(row)}</Table.Th>
                : <Table.Td key={c.label} className={c.right ? "right" : undefined}>{c.cell(row)}</Table.Td>)}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
