import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { Heading } from "../parts/Facts";
import { Badge } from "../parts/Badge";
import { JobLink, NodeLink, Outside, To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { choicesOf, useSites } from "../parts/named";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { askJobAction } from "./Job";

type Entry = Schemas["Attention"];

const kinds = [
  "parked_job", "job_stuck", "start_not_sent", "orphan_workflow", "node_stuck", "node_quarantined", "bmc_login_blocked", "bmc_pin_pending", "agent_locked",
  "agent_certificate_ends", "agent_certificate_adopted", "agent_certificate_refused", "task_uncertain", "sweeper", "drift", "reconcile", "install_failed",
  "discovery_full", "hardware_wanted", "agent_silent", "tenant_left", "event_not_sent", "audit_broken", "audit_silent", "restore_unconfirmed",
  "clock_disagrees", "enforcement_stopped", "account_set_aside", "billing_silent", "keys_unconfirmed",
  "payment_mismatch", "payment_difference", "payment_dispute", "payments_silent",
  "instance_failed", "instance_orphan", "instance_provider", "campaign_stopped", "run_failed",
] as const;

/** Where links to what an entry is about, as far as the portal has a page for it. */
function Where({ entry }: { entry: Entry }) {
  const finding = /\/drift\/([^/]+)$/.exec(entry.link ?? "")?.[1];
  if (entry.job_id) return <JobLink id={entry.job_id} name={entry.hostname ? `${words(entry.job_kind)}: ${entry.hostname}` : words(entry.job_kind)} row />;
  if (finding) return <To path={`/drift/${finding}`} row>{entry.hostname || text.drift.title}</To>;
  if (entry.node_id) return <NodeLink id={entry.node_id} name={entry.hostname} row />;
  if (entry.bmc_id) return <To path={`/bmcs/${encodeURIComponent(entry.bmc_id)}`} row>{entry.bmc_id}</To>;
  return <>{entry.link ?? ""}</>;
}

function columns(reload: () => void): Column<Entry>[] {
  return [
    { label: text.attention.resource, header: true, cell: (e) => <Where entry={e} /> },
    { label: text.attention.kind, cell: (e) => <Badge status={e.kind} tone="warn" /> },
    { label: text.attention.message, cell: (e) => <>{e.failure_class && <><Badge status={e.failure_class} tone="bad" /> </>}{e.message}{e.workflow_lost && <> {text.job.lost}</>}</> },
    { label: text.attention.next, cell: (e) => <Next entry={e} reload={reload} /> },
    { label: text.attention.since, cell: (e) => <Time at={e.since} /> },
  ];
}

function Next({ entry, reload }: { entry: Entry; reload: () => void }) {
  const action = entry.recommended_action;
  const offered = entry.job_id && action && entry.allowed_actions?.includes(action) && hasRole("operator");
  return (
    <>
      {entry.next_action} {entry.runbook && <Outside href={entry.runbook}>{text.attention.runbook}</Outside>}
      {offered && (
        <button type="button" data-action={action} aria-label={`${words(action)}: ${entry.hostname ?? ""}`}
          onClick={() => askJobAction({ id: entry.job_id, kind: entry.job_kind, hostname: entry.hostname, message: entry.message }, action, reload)}>{words(action)}</button>
      )}
    </>
  );
}

/** AttentionPage lists what requires operator action. */
export function AttentionPage() {
  const filter = place.value.query;
  const sites = useSites();
  const kind = kinds.find((k) => k === filter.get("kind"));
  const list = useList<Entry>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/attention", { params: { query: { limit: 50, cursor: cursor || undefined, kind, site_id: filter.get("site_id") ?? undefined } } })),
    idOf: (e) => e.id ?? "", kinds: [], oldestFirst: true,
  });
  return (
    <>
      <Heading title={text.attention.title} />
      <FilterForm fields={[
        { name: "kind", label: text.attention.kind, any: text.attention.all, options: kinds.map((k) => ({ value: k, label: words(k) })) },
        { name: "site_id", label: text.nodes.site, options: choicesOf(sites) },
      ]} />
      <ListTable list={list} caption={text.attention.caption} columns={columns(list.reload)} empty={text.attention.none} />
    </>
  );
}
