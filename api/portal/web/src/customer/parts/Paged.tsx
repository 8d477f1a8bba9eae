import { Button, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { DataTable } from "./DataTable";
import type { Column } from "./DataTable";
import { Loaded } from "./Loaded";

interface PageOf<T> {
  data?: T[] | null;
  next_cursor?: string;
}

interface Props<T> {
  name: unknown[];
  caption: string;
  read: (cursor: string | undefined) => Promise<PageOf<T>>;
  keyOf: (row: T) => string;
  columns: Column<T>[];
  empty: string;
  every?: number;
}

/** Paged shows a list of the API a page at a time. */
export function Paged<T>({ name, caption, read, keyOf, columns, empty, every }: Props<T>) {
  const [cursors, setCursors] = useState<string[]>([]);
  const cursor = cursors.at(-1);
  const query = useQuery({ queryKey: [...name, "page", cursor ?? ""], queryFn: () => read(cursor), refetchInterval: every });
  return (
    <Loaded query={query}>
      {(page) => (
        <>
          <DataTable caption={caption} rows={page.data ?? []} keyOf={keyOf} columns={columns} empty={empty} />
          {(cursors.length > 0 || page.next_cursor) && (
            <Group mt="sm">
              <Button variant="default" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>Previous page</Button>
              <Button variant="default" disabled={!page.next_cursor} onClick={() => setCursors([...cursors, page.next_cursor ?? ""])}>Next page</Button>
            </Group>
          )}
        </>
      )}
    </Loaded>
  );
}
