import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { serverNow } from "../clock";
import { everything, pauseAfter, useLive } from "../live";
import { hrefOf, navigate, place } from "../router";
import { text } from "../text";
import { ProblemText } from "./ProblemText";
import { Table } from "./Table";
import type { Column } from "./Table";
import { Time } from "./Time";

const wholePageEvery = 5000; // milliseconds between two reads of a page that has no ids filter

/** PageOf is one page of a list of the API. */
export interface PageOf<R> {
  data?: R[];
  next_cursor?: string;
}

interface Options<R> {
  /** Reads a page; "" is the first cursor. */
  read: (cursor: string) => Promise<PageOf<R>>;
  /** Reads only these rows. Without it the whole page is read again when something changes. */
  readIds?: (ids: string[]) => Promise<R[]>;
  idOf: (row: R) => string;
  /** Kinds of events after which rows may have come or gone. */
  kinds: string[];
  /** Ids in events that concern a row, besides its own. */
  watch?: (row: R) => (string | undefined)[];
  /** Oldest first: new rows are added at the end, where they move nothing. */
  oldestFirst?: boolean;
}

/** ListState is a page of a list as it stands on the screen. */
export interface ListState<R> {
  rows: R[];
  next: string | undefined;
  problem: Problem | undefined;
  loading: boolean;
  at: string | undefined;
  gone: Set<string>;
  changed: boolean;
  reload: () => void;
  idOf: (row: R) => string;
}

interface Shown<R> {
  key: string;
  rows: R[];
  next?: string;
  problem?: Problem;
  at?: string;
  gone: Set<string>;
}

/**
 * useList holds the page of a list that the address names, and keeps its rows current. A row never
 * moves and never vanishes while it is on the screen: what left the list is marked, and what is new
 * shows after a reload.
 */
export function useList<R>({ read, readIds, idOf, kinds, watch, oldestFirst }: Options<R>): ListState<R> {
  const key = place.value.path + "?" + place.value.query.toString();
  const cursor = place.value.query.get("cursor") ?? "";
  const [shown, setShown] = useState<Shown<R>>({ key: "", rows: [], gone: new Set() });
  const [loading, setLoading] = useState(true);
  const [changed, setChanged] = useState(false);
  const [turn, setTurn] = useState(0);
  const current = useRef(key);
  current.current = key;

  useEffect(() => {
    let left = false;
    setLoading(true);
    read(cursor).then((page) => {
      if (left) return;
      setShown({ key, rows: page.data ?? [], next: page.next_cursor || undefined, at: new Date(serverNow()).toISOString(), gone: new Set() });
      setChanged(false);
    }, (error: unknown) => {
      if (!left) setShown((s) => (s.key === key ? { ...s, problem: asProblem(error) } : { key, rows: [], gone: new Set(), problem: asProblem(error) }));
    }).finally(() => { if (!left) setLoading(false); });
    return () => { left = true; };
  }, [key, turn]);

  const watched = new Map<string, string>();
  for (const row of shown.rows) {
    watched.set(idOf(row), idOf(row));
    for (const other of watch?.(row) ?? []) if (other) watched.set(other, idOf(row));
  }
  if (oldestFirst) watched.set(everything, everything);

  /** update reads rows again and puts them in the place of what is shown of them. */
  async function update(wanted: string[]): Promise<void> {
    const page = readIds ? { data: await readIds(wanted) } : await read(cursor);
    const fresh = new Map((page.data ?? []).map((row) => [idOf(row), row]));
    if (current.current !== key) return;
    setShown((s) => {
      const gone = new Set(s.gone);
      const rows = s.rows.map((row) => {
        const id = idOf(row);
        const found = fresh.get(id);
        fresh.delete(id);
        if (found) gone.delete(id);
        else if (!readIds || wanted.includes(id)) gone.add(id);
        return found ?? row;
      });
      const added = oldestFirst ? [...fresh.values()] : [];
      return { ...s, rows: [...rows, ...added], gone, next: readIds ? s.next : page.next_cursor || undefined, at: new Date(serverNow()).toISOString() };
    });
  }
  useLive([...watched.keys()], async (ids) => {
    if (readIds) await update([...new Set(ids.map((id) => watched.get(id) ?? id))]);
    else await pauseAfter(wholePageEvery, () => update([]))();
  }, (changedKinds) => { if (!oldestFirst && changedKinds.some((k) => kinds.includes(k))) setChanged(true); });

  const { rows, gone, next, problem, at } = shown;
  return { rows, gone, next, problem, at, loading, changed, reload: () => setTurn((t) => t + 1), idOf };
}

interface Props<R> {
  list: ListState<R>;
  caption: string;
  columns: Column<R>[];
  /** What a list without filters says when it is empty. */
  empty?: string;
}

/** ListTable shows a list with its pages. */
export function ListTable<R>({ list, caption, columns, empty }: Props<R>) {
  return (
    <section aria-label={caption}>
      <ProblemText problem={list.problem} again={list.reload} />
      <Table caption={caption} columns={columns} rows={list.rows} keyOf={list.idOf} busy={list.loading} empty={list.problem ? undefined : emptyText(empty)}
        gone={(row) => (list.gone.has(list.idOf(row)) ? text.list.gone : undefined)} />
      <Pager list={list} />
    </section>
  );
}

/** emptyText says why a page of a list has no rows. none is for a list without filters. */
function emptyText(none: string = text.list.none): string {
  const names = [...place.value.query.keys()];
  if (names.includes("cursor")) return text.list.end;
  return names.length > 0 ? text.list.empty : none;
}

function Pager<R>({ list }: { list: ListState<R> }) {
  const cursors = place.value.state.cursors ?? [];
  const query = place.value.query;
  const atStart = !query.get("cursor");

  function go(cursor: string | undefined, stack: string[]): void {
    const next = new URLSearchParams(query);
    if (cursor) next.set("cursor", cursor);
    else next.delete("cursor");
    navigate(hrefOf(place.value.path, next), { state: { cursors: stack } });
  }
  // The buttons stay focusable at the ends, so that the focus is not lost on the last page.
  return (
    <nav class="pager" aria-label={text.list.pages}>
      <button type="button" aria-disabled={atStart} onClick={() => { if (!atStart) go(cursors.at(-1), cursors.slice(0, -1)); }}>◀ {text.list.previous}</button>
      <span role="status">{text.list.page(atStart ? 1 : Math.max(2, cursors.length + 1))}, {list.loading ? text.loading : text.list.rows(list.rows.length)}</span>
      <button type="button" aria-disabled={!list.next} onClick={() => { if (list.next) go(list.next, [...cursors, query.get("cursor") ?? ""]); }}>{text.list.next} ▶</button>
      <span class="quiet pager-age">{text.time.readAt} <Time at={list.at} stale /></span>
      <button type="button" onClick={list.reload}>{text.list.reload}</button>
      <span class="pager-note" role="status">{list.changed ? text.list.changed : ""}</span>
    </nav>
  );
}

/** FilterField is one field of a filter form. */
export interface FilterField {
  name: string;
  label: string;
  help?: string;
  /** Choices of a select; without them it is a text field. */
  options?: { value: string; label: string }[];
  /** What no choice is called. */
  any?: string;
}

/** FilterForm holds the filters of a list; the address holds their values. */
export function FilterForm({ fields, children }: { fields: FilterField[]; children?: ComponentChildren }) {
  const ref = useRef<HTMLFormElement>(null);
  const search = place.value.query.toString();
  useEffect(() => {
    for (const field of fields) {
      const input = ref.current?.elements.namedItem(field.name);
      if (input instanceof HTMLInputElement || input instanceof HTMLSelectElement) input.value = place.value.query.get(field.name) ?? "";
    }
  }, [search, fields.map((f) => f.options?.length).join()]);

  function submit(event: Event): void {
    event.preventDefault();
    if (!ref.current) return;
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(ref.current)) if (typeof value === "string" && value.trim()) query.append(name, value.trim());
    navigate(hrefOf(place.value.path, query));
  }
  return (
    <form ref={ref} role="search" aria-label={text.list.filters} class="filters" onSubmit={submit}>
      {fields.map((f) => (
        <label key={f.name} title={f.help}>
          <span>{f.label}</span>
          {f.options
            ? <select name={f.name}><option value="">{f.any ?? text.list.any}</option>{f.options.map((o) => <option key={o.value} value={o.value}>{o.label}</option>)}</select>
            : <input name={f.name} type="search" maxLength={100} placeholder={f.help} />}
        </label>
      ))}
      {children}
      <div class="buttons">
        <button type="submit">{text.list.apply}</button>
        <button type="button" class="plain" onClick={() => navigate(hrefOf(place.value.path))}>{text.list.reset}</button>
      </div>
    </form>
  );
}
