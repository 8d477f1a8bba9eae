import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { Badge } from "../parts/Badge";
import { Heading } from "../parts/Facts";
import { JobLink, NodeLink } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { choicesOf, useSites } from "../parts/named";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { text, words } from "../text";

type Job = Schemas["Job"];

const kinds = ["onboarding", "decommission", "node_operation", "bmc_rotation", "agent_reissue", "agent_update", "allocation_provision", "allocation_release", "allocation_keys", "machine_run", "instance_create", "instance_terminate", "payment_reconcile"];
const states = ["pending", "running", "completed", "failed_retryable", "failed_manual_intervention", "cancelled", "failed", "compensating", "reconciled"];

/** readJobs reads a page of jobs with the filters of the address. */
export function readJobs(filter: URLSearchParams, more: { cursor?: string; ids?: string[] }) {
  const of = (name: string) => (more.ids ? undefined : filter.get(name) ?? undefined);
  const needs = of("needs_human");
  const query = {
    limit: more.ids ? more.ids.length : 50, cursor: more.cursor || undefined, ids: more.ids,
    kind: of("kind"), status: of("status"), node_id: of("node_id"), site_id: of("site_id"), batch_id: of("batch_id"), bmc_id: of("bmc_id"),
    needs_human: (["true", "false"] as const).find((n) => n === needs),
  };
  return call(() => client.GET("/api/v1/admin/jobs", { params: { query } }));
}

/** jobColumns are those of each list of jobs. */
export const jobColumns: Column<Job>[] = [
  { label: text.jobs.job, header: true, cell: (j) => <JobLink id={j.id} name={words(j.kind) + (j.mode ? `: ${words(j.mode)}` : "")} row /> },
  { label: text.jobs.node, cell: (j) => (j.node_id ? <NodeLink id={j.node_id} name={j.hostname} /> : j.hostname ?? "") },
  { label: text.jobs.status, cell: (j) => <Badge status={j.status} /> },
  { label: text.jobs.stage, cell: (j) => words(j.stage) },
  { label: text.jobs.progress, number: true, cell: (j) => `${j.progress_percent ?? 0} %` },
  { label: text.job.failureClass, cell: (j) => words(j.failure_class) },
  { label: text.jobs.created, cell: (j) => <Time at={j.created_at} /> },
  { label: text.jobs.changed, cell: (j) => <Time at={j.updated_at} /> },
];

/** Jobs lists jobs of every kind, newest first. */
export function Jobs() {
  const filter = place.value.query;
  const sites = useSites();
  const list = useList<Job>({
    read: (cursor) => readJobs(filter, { cursor }),
    readIds: async (ids) => (await readJobs(filter, { ids })).data ?? [],
    idOf: (j) => j.id ?? "", kinds: ["job"],
  });
  const choices = (all: string[]) => all.map((s) => ({ value: s, label: words(s) }));
  return (
    <>
      <Heading title={text.jobs.title} />
      <FilterForm fields={[
        { name: "kind", label: text.jobs.kind, options: choices(kinds) },
        { name: "status", label: text.jobs.status, options: choices(states) },
        { name: "needs_human", label: text.jobs.needsHuman, options: [{ value: "true", label: text.yes }, { value: "false", label: text.no }] },
        { name: "site_id", label: text.nodes.site, options: choicesOf(sites) },
        { name: "node_id", label: text.jobs.node },
      ]} />
      <ListTable list={list} caption={text.jobs.caption} columns={jobColumns} />
    </>
  );
}
