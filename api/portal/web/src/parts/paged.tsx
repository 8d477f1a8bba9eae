import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { pauseAfter, useLive } from "../live";
import { text } from "../text";
import type { PageOf } from "./list";
import { ProblemText } from "./ProblemText";
import { Table } from "./Table";
import type { Column } from "./Table";

interface Props<R> {
  /** What the list is about; another key begins at the first page. */
  name: string;
  caption: string;
  read: (cursor: string) => Promise<PageOf<R>>;
  columns: Column<R>[];
  keyOf: (row: R, index: number) => string;
  /** Ids of events after which there may be new rows. */
  watch: string[];
  empty: string;
}

/**
 * PagedTable is a list inside a page, such as a timeline: newest first, older rows by pages. The rows
 * on the screen stay current; new ones show after a reload, so that nothing moves while it is read.
 */
export function PagedTable<R>({ name, caption, read, columns, keyOf, watch, empty }: Props<R>) {
  const [cursors, setCursors] = useState<string[]>([]);
  const [turn, setTurn] = useState(0);
  const [rows, setRows] = useState<R[]>([]);
  const [next, setNext] = useState<string>();
  const [problem, setProblem] = useState<Problem>();
  const [loading, setLoading] = useState(true);
  const [changed, setChanged] = useState(false);
  const cursor = cursors.at(-1) ?? "";
  const shownName = useRef(name);
  if (shownName.current !== name) {
    shownName.current = name;
    setCursors([]);
  }
  useEffect(() => {
    let left = false;
    setLoading(true);
    read(cursor).then((page) => {
      if (left) return;
      setRows(page.data ?? []);
      setNext(page.next_cursor || undefined);
      setProblem(undefined);
      setChanged(false);
    }, (error: unknown) => { if (!left) setProblem(asProblem(error)); }).finally(() => { if (!left) setLoading(false); });
    return () => { left = true; };
  }, [name, cursor, turn]);
  const shown = useRef({ rows, cursor });
  shown.current = { rows, cursor };
  useLive(watch, pauseAfter(2000, async () => {
    const { cursor: asked } = shown.current;
    const page = await read(asked);
    const fresh = new Map((page.data ?? []).map((row, i) => [keyOf(row, i), row]));
    const { rows: held, cursor: now } = shown.current;
    if (now !== asked) return;
    const known = held.map((row, i) => fresh.get(keyOf(row, i)) ?? row);
    const added = fresh.size > known.filter((row, i) => fresh.has(keyOf(row, i))).length;
    if (held.length === 0) setNext(page.next_cursor || undefined);
    setRows(held.length === 0 ? page.data ?? [] : known);
    setChanged(held.length > 0 && added);
  }));
  const reload = () => setTurn((t) => t + 1);
  const newest = () => { setCursors([]); reload(); };
  return (
    <>
      <ProblemText problem={problem} again={reload} />
      <Table caption={caption} columns={columns} rows={rows} keyOf={keyOf} busy={loading} empty={problem ? undefined : empty} />
      <nav class="pager" aria-label={`${text.list.pages}: ${caption}`}>
        <button type="button" aria-disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>◀ {text.list.previous}</button>
        <span role="status">{text.list.page(cursors.length + 1)}</span>
        <button type="button" aria-disabled={!next} onClick={() => { if (next) setCursors([...cursors, next]); }}>{text.list.next} ▶</button>
        <button type="button" onClick={newest}>{text.list.reload}</button>
        <span class="pager-note" role="status">{changed ? text.list.changed : ""}</span>
      </nav>
    </>
  );
}
