import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { pauseAfter, useLive } from "../live";
import { Badge } from "../parts/Badge";
import { Facts, Heading, Section } from "../parts/Facts";
import { JobLink, NodeLink, To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { choicesOf, nameOf, useSites } from "../parts/named";
import type { Named } from "../parts/named";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { text, words } from "../text";
import type { PageProps } from ".";

type Batch = Schemas["Batch"];

/** Counts shows how many items have which status. */
function Counts({ counts }: { counts: Record<string, number> | undefined }) {
  const known = Object.entries(counts ?? {}).filter(([, n]) => n > 0);
  return <>{known.map(([status, n]) => <span key={status}><Badge status={status} /> {n} </span>)}</>;
}

function columns(sites: Named[]): Column<Batch>[] {
  return [
    { label: text.batches.name, header: true, cell: (b) => <To path={`/batches/${encodeURIComponent(b.id ?? "")}`} row>{b.name || b.id}</To> },
    { label: text.batches.site, cell: (b) => nameOf(sites, b.site_id) },
    { label: text.batches.total, number: true, cell: (b) => b.total },
    { label: text.batches.counts, cell: (b) => <Counts counts={b.counts} /> },
    { label: text.batches.created, cell: (b) => <Time at={b.created_at} /> },
    { label: text.batches.by, cell: (b) => b.created_by ?? "" },
  ];
}

/** Batches lists onboarding batches, newest first. */
export function Batches() {
  const sites = useSites();
  const site = place.value.query.get("site_id") ?? undefined;
  const list = useList<Batch>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/onboarding-batches", { params: { query: { limit: 50, cursor: cursor || undefined, site_id: site } } })),
    idOf: (b) => b.id ?? "", kinds: ["batch"],
  });
  return (
    <>
      <Heading title={text.batches.title} />
      <FilterForm fields={[{ name: "site_id", label: text.nodes.site, options: choicesOf(sites) }]} />
      <ListTable list={list} caption={text.batches.caption} columns={columns(sites)} />
    </>
  );
}

/** BatchPage shows a batch and how far each of its servers is. */
export function BatchPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const sites = useSites();
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/onboarding-batches/{id}", { params: { path: { id } } })));
  const batch = read.data;
  useLive([id, ...(batch?.items ?? []).flatMap((i) => (i.job_id ? [i.job_id] : []))], pauseAfter(5000, read.again));
  if (!batch) return <><Heading title={id} /><ProblemText problem={read.problem} again={() => void read.again()} />{read.loading && <p role="status">{text.loading}</p>}</>;
  return (
    <>
      <Heading title={batch.name || id}><Counts counts={batch.counts} /><span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span></Heading>
      <ProblemText problem={read.problem} />
      <Facts facts={[
        [text.node.id, <code>{batch.id}</code>], [text.batches.site, nameOf(sites, batch.site_id)], [text.batches.total, batch.total],
        [text.batches.parallel, batch.max_parallel], [text.batches.created, <Time at={batch.created_at} />], [text.batches.by, batch.created_by],
      ]} />
      <Section title={text.batches.items}>
        <Table caption={text.batches.items} rows={batch.items ?? []} keyOf={(i) => String(i.ordinal)} empty={text.batches.itemsNone} columns={[
          { label: text.nodes.hostname, header: true, cell: (i) => (i.node_id ? <NodeLink id={i.node_id} name={i.hostname} row /> : i.hostname ?? "") },
          { label: text.jobs.status, cell: (i) => <Badge status={i.status} /> },
          { label: text.jobs.stage, cell: (i) => words(i.stage) },
          { label: text.jobs.progress, number: true, cell: (i) => `${i.progress_percent ?? 0} %` },
          { label: text.jobs.job, cell: (i) => (i.job_id ? <JobLink id={i.job_id} /> : "") },
          { label: text.batches.error, cell: (i) => i.error ?? "" },
        ]} />
      </Section>
    </>
  );
}
