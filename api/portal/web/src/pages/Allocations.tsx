import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Eta } from "../parts/Eta";
import { Facts, Heading, Section } from "../parts/Facts";
import { JobLink, NodeLink, To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { choicesOf, useSites, useSkus } from "../parts/named";
import { useRead } from "../parts/read";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import type { PageProps } from ".";

type AllocationView = Schemas["AdminAllocation"];
type Progress = Schemas["AllocationProgress"];

const statuses = ["requested", "provisioning", "active", "releasing", "release_failed", "released", "failed"];

/** statusFilter is the filter of a list of allocations by status. */
export const statusFilter = { name: "status", label: text.allocations.state, options: statuses.map((s) => ({ value: s, label: words(s) })) };

/** progressText says how far the job of an allocation is. */
export function progressText(p: Progress | undefined): string {
  return p ? `${words(p.stage)} ${p.percent ?? 0} %` : "";
}

const columns: Column<AllocationView>[] = [
  { label: text.node.id, header: true, cell: (a) => <To path={`/allocations/${encodeURIComponent(a.id ?? "")}`} row>{a.id}</To> },
  { label: text.node.state, cell: (a) => <Badge status={a.status} /> },
  { label: text.projects.one, cell: (a) => <To path={`/projects/${encodeURIComponent(a.project_id ?? "")}`}>{a.project_id}</To> },
  { label: text.nodes.sku, cell: (a) => a.sku ?? "" },
  { label: text.jobs.node, cell: (a) => a.node_id && <NodeLink id={a.node_id} name={a.hostname} /> },
  { label: text.allocations.nodeState, cell: (a) => a.node_status && <Badge status={a.node_status} /> },
  { label: text.allocations.access, cell: (a) => a.access && <Badge status={a.access} /> },
  { label: text.allocations.attempts, number: true, cell: (a) => a.release_attempts || "" },
  { label: text.allocations.progress, cell: (a) => a.job_id && <JobLink id={a.job_id} name={progressText(a.progress) || a.job_id} /> },
  { label: text.allocations.requested, cell: (a) => <Time at={a.requested_at} /> },
];

/** Allocations lists the allocations of all customers, without what is the customers' own. */
export function Allocations() {
  const filter = place.value.query;
  const of = (name: string) => filter.get(name) ?? undefined;
  const skus = useSkus();
  const sites = useSites();
  const list = useList<AllocationView>({
    read: (cursor) => {
      const status = of("status");
      const query = { limit: 50, cursor: cursor || undefined, status: status ? [status] : undefined, project_id: of("project_id"), sku_id: of("sku_id"), site_id: of("site_id"), node_id: of("node_id") };
      return call(() => client.GET("/api/v1/admin/allocations", { params: { query } }));
    },
    // The events of allocations are the customers' own. What operators see of them changes with the jobs.
    idOf: (a) => a.id ?? "", watch: (a) => [a.job_id, a.node_id], kinds: ["job"],
  });
  return (
    <>
      <Heading title={text.allocations.title} />
      <FilterForm fields={[
        statusFilter,
        { name: "sku_id", label: text.nodes.sku, options: choicesOf(skus) },
        { name: "site_id", label: text.nodes.site, options: choicesOf(sites) },
        { name: "project_id", label: text.projects.one },
        { name: "node_id", label: text.jobs.node },
      ]} />
      <ListTable list={list} caption={text.allocations.caption} columns={columns} />
    </>
  );
}

/** useAllocation reads what operators see of an allocation, and keeps it current. */
export function useAllocation(id: string) {
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/allocations/{allocation_id}", { params: { path: { allocation_id: id } } })));
  const ids = [id, read.data?.job_id, read.data?.node_id].filter((known) => known !== undefined && known !== "") as string[];
  useLive(ids, read.again);
  return read;
}

/** AllocationPage shows an allocation to operators, with what they may do now. */
export function AllocationPage({ params }: PageProps) {
  const read = useAllocation(params["id"] ?? "");
  const again = () => void read.again();
  return (
    <Loaded read={read} title={params["id"] ?? ""}>
      {(a) => (
        <>
          <Heading title={`${text.allocations.one}: ${a.id ?? ""}`}>
            <Badge status={a.status} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
            <div class="buttons">
              <button type="button" onClick={again}>{text.list.reload}</button>
              {hasRole("operator") && a.allowed_actions?.map((action) => (
                <button key={action} type="button" class={action === "remove_assignment" ? "danger" : undefined} data-action={action} onClick={() => askOperatorAction(a, action, again)}>{words(action)}</button>
              ))}
            </div>
          </Heading>
          <div class="columns">
            <Section title={text.allocations.live}><LiveProgress allocation={a} /></Section>
            {a.failure_message && <Section title={text.allocations.failure}><p>{a.failure_message}</p></Section>}
            <Section title={text.node.facts}><AllocationFacts allocation={a} /></Section>
          </div>
          <p>{text.allocations.customers} <To path={`/projects/${encodeURIComponent(a.project_id ?? "")}/allocations/${encodeURIComponent(a.id ?? "")}`}>{text.allocations.inProject}</To></p>
        </>
      )}
    </Loaded>
  );
}

/** LiveProgress shows how far the live job of an allocation is, and when it will end. */
export function LiveProgress({ allocation: a }: { allocation: AllocationView }) {
  const p = a.progress;
  if (!p) return <p class="quiet">{text.allocations.noJob}</p>;
  return (
    <>
      <p><progress max={100} value={p.percent ?? 0} aria-label={text.allocations.progress} /> {p.percent ?? 0} % <JobLink id={a.job_id} name={words(p.stage) || a.job_id} /> <Badge status={a.job_status} /></p>
      <p class="quiet">{text.allocations.stages(p.stages_done ?? 0, p.stages ?? 0)}</p>
      <Eta eta={p.eta} />
    </>
  );
}

const timeOf = (at: string | undefined) => at && <Time at={at} />;

function AllocationFacts({ allocation: a }: { allocation: AllocationView }) {
  return (
    <Facts facts={[
      [text.node.id, <code>{a.id}</code>],
      [text.projects.one, <To path={`/projects/${encodeURIComponent(a.project_id ?? "")}`}>{a.project_id}</To>],
      [text.nodes.sku, <To path={`/skus/${encodeURIComponent(a.sku_id ?? "")}`}>{a.sku || a.sku_id}</To>],
      [text.allocations.condition, words(a.condition)],
      [text.job.message, a.condition_reason],
      [text.jobs.node, a.node_id && <NodeLink id={a.node_id} name={a.hostname} />],
      [text.allocations.nodeState, a.node_status && <Badge status={a.node_status} />],
      [text.nodes.site, a.topology?.site],
      [text.allocations.access, a.access && <Badge status={a.access} />],
      [text.allocations.attempts, a.release_attempts],
      [text.allocations.outcome, words(a.outcome)],
      [text.allocations.requested, timeOf(a.requested_at)],
      [text.allocations.active, timeOf(a.start_time)],
      [text.allocations.releasing, timeOf(a.releasing_at)],
      [text.allocations.accessEnded, timeOf(a.access_ended_at)],
      [text.allocations.nodeFreed, timeOf(a.node_released_at)],
      [text.allocations.ended, timeOf(a.released_at)],
      [text.allocations.certificate, a.certificate_id && <code>{a.certificate_id}</code>],
    ]} />
  );
}

/** askOperatorAction asks for a reason, which the owners of the project see, and sends the action. */
function askOperatorAction(a: AllocationView, action: string, again: () => void): void {
  const path = { allocation_id: a.id ?? "" };
  const removes = action === "remove_assignment";
  askAction({
    title: `${words(action)}: ${a.hostname || a.id || ""}`, button: words(action), reason: "required", reasonMax: 500, danger: removes, done: again,
    body: <><p>{text.allocations.meaning[action]}</p><p>{text.projects.quotaHelp}</p></>,
    warnings: a.failure_message ? [a.failure_message] : undefined, confirmName: removes ? a.hostname || a.id : undefined,
    send: async ({ reason }) => {
      if (removes) await call(() => client.POST("/api/v1/admin/allocations/{allocation_id}/remove-assignment", { params: { path, header: { "If-Match": `"${a.version ?? 0}"` } }, body: { reason } }));
      else await call(() => client.POST("/api/v1/admin/allocations/{allocation_id}/force-release", { params: { path }, body: { reason } }));
      return text.action.sent;
    },
  });
}
