import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Facts, Heading, Section } from "../parts/Facts";
import { NodeLink, To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { choicesOf, useSites } from "../parts/named";
import { PagedTable } from "../parts/paged";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import type { PageProps } from ".";

type Finding = Schemas["Drift"];

const statuses = ["open", "ignored", "closed"] as const;
const severities = ["critical", "warning", "info"] as const;
const everyStatus = "every";

const columns: Column<Finding>[] = [
  { label: text.drift.message, header: true, cell: (f) => <To path={`/drift/${encodeURIComponent(f.id ?? "")}`} row>{f.message || f.detector}</To> },
  { label: text.drift.severity, cell: (f) => <Badge status={f.severity} /> },
  { label: text.drift.status, cell: (f) => <Badge status={f.status} tone="quiet" /> },
  { label: text.drift.where, cell: (f) => (f.node_id ? <NodeLink id={f.node_id} name={f.hostname} /> : f.hostname || f.subject) },
  { label: text.drift.detector, cell: (f) => words(f.detector) },
  { label: text.drift.seen, cell: (f) => <Time at={f.last_seen_at} /> },
  { label: text.drift.count, number: true, cell: (f) => f.seen_count },
];

/** DriftPage lists the findings: the open ones unless others are asked for. */
export function DriftPage() {
  const filter = place.value.query;
  const sites = useSites();
  const chosen = filter.get("status");
  const status = chosen === everyStatus ? undefined : statuses.find((s) => s === chosen) ?? "open";
  const severity = severities.find((s) => s === filter.get("severity"));
  const of = (name: string) => filter.get(name) ?? undefined;
  const list = useList<Finding>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/drift", {
      params: { query: { limit: 50, cursor: cursor || undefined, status, severity, detector: of("detector"), site_id: of("site_id"), node_id: of("node_id") } },
    })),
    idOf: (f) => f.id ?? "", kinds: ["drift", "drift_finding"],
  });
  return (
    <>
      <Heading title={text.drift.title} />
      <FilterForm fields={[
        { name: "status", label: text.drift.status, any: statuses[0], options: [...statuses.slice(1), everyStatus].map((s) => ({ value: s, label: s === everyStatus ? text.drift.all : s })) },
        { name: "severity", label: text.drift.severity, options: severities.map((s) => ({ value: s, label: s })) },
        { name: "site_id", label: text.nodes.site, options: choicesOf(sites) },
        { name: "detector", label: text.drift.detector },
        { name: "node_id", label: text.jobs.node },
      ]} />
      <ListTable list={list} caption={text.drift.caption} columns={columns} empty={text.drift.none} />
      <Section title={text.drift.passes}><Passes /></Section>
    </>
  );
}

function Passes() {
  return (
    <PagedTable<Schemas["DriftPass"]> name="passes" caption={text.drift.passes} watch={[]} empty={text.list.none} keyOf={(p) => p.site_id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/admin/drift-passes", { params: { query: { limit: 50, cursor: cursor || undefined } } }))}
      columns={[
        { label: text.drift.passSite, header: true, cell: (p) => <>{p.site || p.site_id || text.drift.noSite} {p.late && <Badge status={text.drift.late} tone="bad" />}</> },
        { label: text.drift.passFinished, cell: (p) => <Time at={p.finished_at} /> },
        { label: text.drift.passProblem, cell: (p) => p.problem ?? "" },
      ]} />
  );
}

/** FindingPage shows one finding with its evidence, and what can be done about it now. */
export function FindingPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/drift/{id}", { params: { path: { id } } })));
  useLive([id, read.data?.node_id ?? id], read.again);
  const finding = read.data;
  if (!finding) return <><Heading title={id} /><ProblemText problem={read.problem} again={() => void read.again()} />{read.loading && <p role="status">{text.loading}</p>}</>;
  return (
    <>
      <Heading title={`${text.drift.title}: ${words(finding.detector)}`}><Badge status={finding.severity} /><Badge status={finding.status} tone="quiet" /></Heading>
      <section class="next" aria-label={text.drift.next}>
        <h2>{text.drift.next}</h2>
        <p>{finding.next_action || text.job.noNext}</p>
        {hasRole("operator") && (
          <div class="buttons" role="group" aria-label={text.action.title}>
            {(finding.allowed_actions ?? []).map((a) => <button key={a} type="button" data-action={a} onClick={() => askFindingAction(finding, a, () => void read.again())}>{words(a)}</button>)}
          </div>
        )}
      </section>
      <Section title={text.node.facts}><FindingFacts finding={finding} /></Section>
      <Section title={text.drift.evidence}><pre>{JSON.stringify(finding.evidence ?? null, null, 2)}</pre></Section>
    </>
  );
}

function FindingFacts({ finding: f }: { finding: Finding }) {
  return (
    <Facts facts={[
      [text.drift.message, f.message],
      [text.drift.where, f.node_id ? <NodeLink id={f.node_id} name={f.hostname} /> : f.subject],
      [text.node.maas, f.system_id],
      [text.drift.first, <Time at={f.first_seen_at} />],
      [text.drift.seen, <Time at={f.last_seen_at} />],
      [text.drift.count, f.seen_count],
      [text.drift.adopts, f.adopts],
      [text.drift.acted, f.action && <>{words(f.action)}, {f.acted_by}, <Time at={f.acted_at} />: {f.acted_reason}</>],
      [text.drift.outcome, f.outcome],
      [text.node.id, <code>{f.id}</code>],
    ]} />
  );
}

function askFindingAction(finding: Finding, name: string, again: () => void): void {
  const action = (["adopt", "quarantine", "ignore"] as const).find((a) => a === name);
  if (!action) return;
  const id = finding.id ?? "";
  askAction({
    title: `${words(action)}: ${finding.hostname || words(finding.detector)}`, button: words(action),
    body: <><p>{text.drift.meaning[action]}</p>{action === "adopt" && finding.adopts && <p>{finding.adopts}</p>}</>,
    warnings: finding.message ? [finding.message] : undefined, reason: "required",
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/admin/drift/{id}/actions/{action}", { params: { path: { id, action } }, body: { reason } }));
      return `${words(action)}: ${text.action.sent}`;
    },
    done: again,
  });
}
