import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { ProblemError } from "../api/problem";
import { duration, serverNow } from "../clock";
import { BalanceFacts } from "../parts/BalanceFacts";
import { CostChart } from "../parts/CostChart";
import { Facts, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm } from "../parts/list";
import { money } from "../parts/money";
import { tell } from "../parts/notice";
import { PagedTable } from "../parts/paged";
import { ProblemText } from "../parts/ProblemText";
import type { Read } from "../parts/read";
import { useRead } from "../parts/read";
import { reasonHeader } from "../parts/reason";
import { useSending } from "../parts/sending";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { text, words } from "../text";
import { billing } from "../textBilling";
import type { PartProps } from "./ProjectPart";

// None of these pages follows changes: each read is a row of the project's audit log.

const allocationLink = (project: string | undefined, id: string | undefined) =>
  id && (project ? <To path={`/projects/${encodeURIComponent(project)}/allocations/${encodeURIComponent(id)}`}>{id}</To> : id);

/** Reading says that something is read, and why it could not be. */
function Reading<T>({ read }: { read: Read<T> }) {
  return (
    <>
      <ProblemText problem={read.problem} again={() => void read.again()} />
      {read.loading && read.data === undefined && <p role="status">{text.loading}</p>}
    </>
  );
}

function ReadAt<T>({ read }: { read: Read<T> }) {
  return <p class="quiet">{text.time.readAt} <Time at={read.at} stale /> <button type="button" onClick={() => void read.again()}>{text.list.reload}</button></p>;
}

function useBalance(id: string, turn: number) {
  return useRead(`${id} ${turn}`, () => call(() => client.GET("/api/v1/projects/{id}/balance", { params: { path: { id }, header: reasonHeader(id) } })));
}

/** ProjectBalance shows the balance that pays for a project. */
export function ProjectBalance({ id, turn }: PartProps) {
  const read = useBalance(id, turn);
  return (
    <Section title={billing.balance}>
      <Reading read={read} />
      {read.data && <BalanceFacts balance={read.data} />}
      <ReadAt read={read} />
    </Section>
  );
}

/** ledgerColumns are those of a ledger. */
export function ledgerColumns<R extends Schemas["LedgerLine"]>(exponent: number | undefined): Column<R>[] {
  return [
    { label: billing.postedAt, header: true, cell: (l) => <Time at={l.posted_at} /> },
    { label: billing.kind, cell: (l) => words(l.kind) },
    { label: billing.amount, number: true, cell: (l) => money(l.amount_minor, exponent, l.currency) },
    { label: billing.allocation, cell: (l) => allocationLink(l.project_id, l.allocation_id) },
    { label: billing.until, cell: (l) => l.allocation_id && <Time at={l.effective_at} /> },
    { label: billing.reason, cell: (l) => l.reason ?? "" },
  ];
}

/** ProjectLedger lists what a project was charged and credited. */
export function ProjectLedger({ id, turn }: PartProps) {
  const header = reasonHeader(id);
  const balance = useBalance(id, turn); // it knows how many digits the currency has
  return (
    <Section title={billing.ledger}>
      <p class="quiet">{billing.ledgerHelp}</p>
      <Reading read={balance} />
      {balance.data && (
        <PagedTable<Schemas["LedgerLine"]> name={`${id} ${turn}`} caption={billing.ledger} watch={[]} empty={billing.none} keyOf={(l) => String(l.number)} columns={ledgerColumns(balance.data.exponent)}
          read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/ledger", { params: { path: { id }, header, query: { limit: 50, cursor: cursor || undefined } } }))} />
      )}
    </Section>
  );
}

/** ProjectUsage shows what a project cost on each day, and its allocations by rate. */
export function ProjectUsage({ id, turn }: PartProps) {
  const header = reasonHeader(id);
  const of = (name: string) => place.value.query.get(name) ?? undefined;
  const range = { from: of("from"), to: of("to") };
  const balance = useBalance(id, turn);
  const days = useRead(`${id} ${turn} ${range.from ?? ""} ${range.to ?? ""}`, () => call(() => client.GET("/api/v1/projects/{id}/usage/days", { params: { path: { id }, header, query: range } })));
  const exponent = balance.data?.exponent;
  const rows = days.data?.data ?? [];
  return (
    <>
      <Section title={billing.costPerDay}>
        <FilterForm fields={[{ name: "from", label: billing.from, help: billing.dayHelp }, { name: "to", label: billing.to, help: billing.dayHelp }]} />
        <Reading read={balance} />
        <Reading read={days} />
        {balance.data && days.data && <CostChart rows={rows} exponent={exponent} />}
        {balance.data && rows.length > 0 && (
          <details>
            <summary>{billing.figures}</summary>
            <Table caption={billing.costPerDay} rows={rows} keyOf={(d) => `${d.day ?? ""} ${d.allocation_id ?? ""}`} columns={[
              { label: billing.day, header: true, cell: (d) => d.day },
              { label: billing.allocation, cell: (d) => allocationLink(id, d.allocation_id) },
              { label: billing.time, number: true, cell: (d) => duration(d.seconds ?? 0) },
              { label: billing.cost, number: true, cell: (d) => money(d.cost_minor, exponent, d.currency) },
            ]} />
          </details>
        )}
        <ReadAt read={days} />
      </Section>
      <Section title={billing.segments}>
        {balance.data && (
          <PagedTable<Schemas["UsageSegment"]> name={`${id} ${turn}`} caption={billing.segments} watch={[]} empty={billing.noUsage} keyOf={(u) => `${u.allocation_id ?? ""} ${u.segment ?? 0}`}
            read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/usage", { params: { path: { id }, header, query: { limit: 50, cursor: cursor || undefined } } }))}
            columns={[
              { label: billing.allocation, header: true, cell: (u) => allocationLink(id, u.allocation_id) },
              { label: billing.rate, number: true, cell: (u) => money(u.rate_minor_per_hour, exponent, u.currency) },
              { label: billing.start, cell: (u) => (u.start_time ? <Time at={u.start_time} /> : billing.notActive) },
              { label: billing.end, cell: (u) => u.end_time && <Time at={u.end_time} /> },
              { label: billing.billed, cell: (u) => u.last_billed_at && <Time at={u.last_billed_at} /> },
              { label: billing.cost, number: true, cell: (u) => money(u.cost_minor, exponent, u.currency) },
            ]} />
        )}
      </Section>
    </>
  );
}

/** cutShort is the problem of a statement without its end. */
const cutShort = () => new ProblemError({ status: 502, title: billing.cut, detail: billing.cutDetail });

/** ProjectStatement shows the statement of a month, and saves it as CSV. */
export function ProjectStatement({ id, turn }: PartProps) {
  const header = reasonHeader(id);
  const month = place.value.query.get("month") ?? new Date(serverNow()).toISOString().slice(0, 7);
  const path = { id, month };
  const { busy, problem, run } = useSending();
  const read = useRead(`${id} ${turn} ${month}`, async () => {
    const statement = await call(() => client.GET("/api/v1/projects/{id}/statements/{month}", { params: { path, header } })) as Schemas["Statement"];
    if (!statement.complete) throw cutShort();
    return statement;
  });
  const save = () => void run(async () => {
    const rows = await call(() => client.GET("/api/v1/projects/{id}/statements/{month}", { params: { path, header, query: { format: "csv" } }, parseAs: "text" })) as string;
    if (!(rows.trimEnd().split("\n").at(-1) ?? "").startsWith(",total,")) throw cutShort();
    const name = `statement-${id}-${month}.csv`;
    saveFile(name, rows);
    tell(billing.saved(name));
  });
  return (
    <Section title={`${billing.statement} ${month}`} side={<button type="button" aria-disabled={busy} onClick={save}>{billing.csv}</button>}>
      <p class="quiet">{billing.statementHelp}</p>
      <FilterForm fields={[{ name: "month", label: billing.month, help: billing.monthHelp }]} />
      <ProblemText problem={problem} />
      <Reading read={read} />
      {read.data && <StatementView statement={read.data} />}
      <ReadAt read={read} />
    </Section>
  );
}

function StatementView({ statement: s }: { statement: Schemas["Statement"] }) {
  return (
    <>
      <Facts facts={[
        [billing.total, money(s.total_minor, s.exponent, s.currency)],
        [billing.final, s.final ? text.yes : billing.open],
        [text.accounts.one, <To path={`/billing-accounts/${encodeURIComponent(s.billing_account_id ?? "")}`}>{s.billing_account_id}</To>],
      ]} />
      <Table caption={billing.statement} rows={s.lines ?? []} keyOf={(l) => `${l.allocation_id ?? ""} ${l.kind ?? ""}`} empty={billing.none} columns={[
        { label: billing.allocation, header: true, cell: (l) => allocationLink(s.project_id, l.allocation_id) ?? billing.whole },
        { label: billing.kind, cell: (l) => words(l.kind) },
        { label: billing.transactions, number: true, cell: (l) => l.transactions },
        { label: billing.first, cell: (l) => <Time at={l.first_at} /> },
        { label: billing.last, cell: (l) => <Time at={l.last_at} /> },
        { label: billing.amount, number: true, cell: (l) => money(l.amount_minor, s.exponent, s.currency) },
      ]} />
    </>
  );
}

/** saveFile has the browser save rows as a file. A link cannot send the reason, so they were read before. */
function saveFile(name: string, rows: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([rows], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
