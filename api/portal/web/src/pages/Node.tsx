import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { bytes, Facts, Heading, Section } from "../parts/Facts";
import { JobLink, To } from "../parts/Link";
import { nameOf, useSites, useSkus } from "../parts/named";
import { ObservedFacts } from "../parts/ObservedFacts";
import { PagedTable } from "../parts/paged";
import { DriveTable } from "../parts/PlanView";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import type { Read } from "../parts/read";
import { Spec } from "../parts/Spec";
import { Table } from "../parts/Table";
import { Time } from "../parts/Time";
import { timelineColumns } from "../parts/timeline";
import { hasRole } from "../session";
import { text, words } from "../text";
import { askNodeAction, nodeActions } from "./nodeActions";
import type { PageProps } from ".";

type Node = Schemas["Node"];

/** NodePage shows all about one node, and the actions that are allowed on it now. */
export function NodePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const path = { params: { path: { id } } };
  const read = useRead(id, () => call(() => client.GET("/api/v1/nodes/{id}", path)));
  const jobs = useRead(id, () => call(() => client.GET("/api/v1/admin/jobs", { params: { query: { node_id: id, limit: 10 } } })));
  const drives = useRead(id, () => call(() => client.GET("/api/v1/nodes/{id}/drives", path)));
  const certificates = useRead(id, () => call(() => client.GET("/api/v1/nodes/{id}/certificates", path)));
  const again = async () => { await Promise.all([read.again(), jobs.again(), drives.again(), certificates.again()]); };
  useLive([id], again);
  const node = read.data;
  if (!node) return <><Heading title={id} /><ProblemText problem={read.problem} again={() => void read.again()} />{read.loading && <p role="status">{text.loading}</p>}</>;
  const observed = jobs.data?.data?.find((j) => j.observed?.at)?.observed;
  return (
    <>
      <Heading title={node.hostname || id}>
        <Badge status={node.status} />
        {node.simulated && <span class="quiet">{text.nodes.simulated}</span>}
        <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
      </Heading>
      <ProblemText problem={read.problem} again={() => void read.again()} />
      {node.tenant_left_at && <p class="warnings"><span aria-hidden="true">▲ </span>{text.node.tenantLeft} (<Time at={node.tenant_left_at} />)</p>}
      {hasRole("operator") && <Actions node={node} again={() => void again()} />}
      <div class="columns">
        <Section title={text.node.facts}><NodeFacts node={node} /></Section>
        <Section title={text.node.observed}><ObservedFacts observed={observed} agentSeen={node.agent?.last_heartbeat_at} none={text.node.noJobObserved} /></Section>
        <Section title={text.node.agent}><Agent agent={node.agent} /></Section>
      </div>
      <Section title={text.node.jobs} side={<To path="/jobs" query={{ node_id: id }}>{text.jobs.title}</To>}><NodeJobs jobs={jobs} /></Section>
      <Section title={text.node.drives}><Drives id={id} drives={drives} /></Section>
      {node.pxe && <Section title={text.pxe.title}><Pxe node={node} pxe={node.pxe} /></Section>}
      <Section title={text.node.certificates}><Certificates read={certificates} /></Section>
      <Section title={text.node.timeline}><Timeline id={id} /></Section>
    </>
  );
}

function Actions({ node, again }: { node: Node; again: () => void }) {
  const allowed = (node.allowed_actions ?? []).filter((a) => nodeActions.includes(a));
  const modes = node.allowed_decommissions ?? [];
  return (
    <div class="buttons" role="group" aria-label={text.action.title}>
      {allowed.map((a) => <button key={a} type="button" data-action={a} onClick={() => askNodeAction(node, a, again)}>{words(a)}</button>)}
      {modes.length > 0 && <To path={`/nodes/${encodeURIComponent(node.id ?? "")}/decommission`} class="button">{text.node.decommission}</To>}
      {allowed.length === 0 && modes.length === 0 && <span class="quiet">{text.action.none}</span>}
    </div>
  );
}

function NodeFacts({ node }: { node: Node }) {
  const sites = useSites();
  const skus = useSkus();
  const labels = Object.entries(node.labels ?? {});
  return (
    <Facts facts={[
      [text.node.id, <code>{node.id}</code>],
      [text.node.job, node.live_job_id && <JobLink id={node.live_job_id} />],
      [text.node.changed, <Time at={node.state_changed_at} />],
      [text.node.site, node.site_id && <To path={`/sites/${encodeURIComponent(node.site_id)}`}>{nameOf(sites, node.site_id)}</To>],
      [text.node.sku, node.sku_id && <To path={`/skus/${encodeURIComponent(node.sku_id)}`}>{nameOf(skus, node.sku_id)}</To>],
      [text.node.profile, node.site_id && node.profile_id && <To path={`/sites/${encodeURIComponent(node.site_id)}/profiles/${encodeURIComponent(node.profile_id)}`}>{node.profile_id}</To>],
      [text.node.lifecycle, node.lifecycle],
      [text.node.serial, node.serial],
      [text.node.uuid, node.hardware_uuid],
      [text.node.macs, node.macs?.join(", ")],
      [text.node.ips, node.ip_addresses?.join(", ")],
      [text.node.maas, node.maas_system_id],
      [text.node.bmc, node.bmc_id && <To path={`/bmcs/${encodeURIComponent(node.bmc_id)}`}>{node.bmc_id}</To>],
      [text.node.allocation, node.allocation_id && <To path={`/allocations/${encodeURIComponent(node.allocation_id)}`}>{node.allocation_id}</To>],
      [text.node.labels, labels.length > 0 && labels.map(([k, v]) => `${k}=${v}`).join(", ")],
      [text.node.updated, <Time at={node.updated_at} />],
    ]} />
  );
}

/** Pxe shows how a node that is installed over the network stands, and what it says of itself. */
function Pxe({ node, pxe }: { node: Node; pxe: Schemas["NodePXE"] }) {
  const workflow = (id: string | undefined) => id && <To path={`/install-workflows/${encodeURIComponent(id)}`}>{id}</To>;
  return (
    <div class="columns">
      <Facts facts={[
        [text.pxe.progress, pxe.installation_progress !== undefined && `${pxe.installation_progress} %`],
        [text.pxe.failedAttempts, node.install_attempts], [text.pxe.lastError, node.last_install_error],
        [text.pxe.deadline, pxe.deadline_at && <Time at={pxe.deadline_at} />],
        [text.pxe.workflow, workflow(pxe.install_workflow_id)], [text.pxe.erase, workflow(pxe.erase_workflow_id)],
        [text.jobs.job, pxe.job_id && <JobLink id={pxe.job_id} />], [text.pxe.seen, pxe.last_seen_at && <><Time at={pxe.last_seen_at} stale /> {pxe.last_seen_from}</>],
      ]} />
      <div>
        {pxe.reported && <><h3>{text.pxe.reported}</h3><Spec spec={pxe.reported} /></>}
        {pxe.netboot && <><h3>{text.pxe.netboot}</h3><Spec spec={pxe.netboot} /></>}
        {pxe.planned_hardware && <><h3>{text.pxe.planned}</h3><Spec spec={pxe.planned_hardware} /></>}
      </div>
    </div>
  );
}

function Agent({ agent }: { agent: Schemas["NodeAgent"] | undefined }) {
  if (!agent) return <p class="quiet">{text.node.noAgent}</p>;
  const report = agent.report;
  const gpus = report?.gpus ?? [];
  return (
    <>
      <Facts facts={[
        [text.node.heartbeat, <Time at={agent.last_heartbeat_at} stale />],
        [text.node.reported, <Time at={agent.reported_at} stale />],
        [text.node.agentVersion, agent.version],
        [text.node.bootId, agent.boot_id],
        [text.node.gpus, gpus.length > 0 && `${gpus.length} × ${gpus[0]?.model ?? text.unknown}`],
        [text.node.driver, report?.driver],
        [text.node.cpus, report?.cpus],
        [text.node.memory, report?.memory_mib && bytes(report.memory_mib * 1024 * 1024)],
      ]} />
      {agent.unhealthy && agent.unhealthy.length > 0
        ? <><p><Badge status="unhealthy" tone="bad" /> {text.node.unhealthy}</p><ul>{agent.unhealthy.map((u, i) => <li key={i}>{u}</li>)}</ul></>
        : report && <p><Badge status="healthy" tone="ok" /> {text.node.healthy}</p>}
    </>
  );
}

function NodeJobs({ jobs }: { jobs: Read<Schemas["ListJob"]> }) {
  return (
    <>
      <ProblemText problem={jobs.problem} />
      <Table caption={text.node.jobs} rows={jobs.data?.data ?? []} keyOf={(j) => j.id ?? ""} empty={text.list.none} busy={jobs.loading && !jobs.data} columns={[
        { label: text.jobs.job, header: true, cell: (j) => <JobLink id={j.id} name={words(j.kind) + (j.mode ? `: ${words(j.mode)}` : "")} row /> },
        { label: text.jobs.status, cell: (j) => <Badge status={j.status} /> },
        { label: text.jobs.created, cell: (j) => <Time at={j.created_at} /> },
      ]} />
    </>
  );
}

function Drives({ id, drives }: { id: string; drives: Read<Schemas["NodeDrives"]> }) {
  const data = drives.data;
  if (!data) return <ProblemText problem={drives.problem} again={() => void drives.again()} />;
  const expected = data.expected ?? [];
  const reported = data.reported ?? [];
  if (expected.length === 0 && reported.length === 0) return <p class="quiet">{text.node.drivesNone}</p>;
  const known = new Set(expected.map((d) => d.serial ?? ""));
  const seen = new Set(reported.map((d) => d.serial ?? ""));
  const differ = reported.length > 0 && (reported.some((d) => !known.has(d.serial ?? "")) || expected.some((d) => !seen.has(d.serial ?? "")));
  const accept = () => askAction({
    title: text.node.acceptDrives, button: text.node.acceptDrives, danger: true, reason: "required",
    body: <><p>{text.node.acceptDrivesHelp}</p><DriveTable caption={text.node.drivesReported} drives={reported} expected={known} /></>,
    send: async ({ reason }) => {
      const body = { reported_digest: data.reported_digest ?? "", reason };
      await call(() => client.POST("/api/v1/nodes/{id}/drives/accept", { params: { path: { id } }, body }));
      return text.action.sent;
    },
    done: () => void drives.again(),
  });
  return (
    <>
      {differ && (
        <p class="warnings"><span aria-hidden="true">▲ </span>{text.node.drivesDiffer}{" "}
          {hasRole("operator") && <button type="button" onClick={accept}>{text.node.acceptDrives}</button>}</p>
      )}
      <div class="columns">
        <div><h3>{text.node.drivesExpected}{data.source && <span class="quiet"> ({text.node.drivesSource}: {words(data.source)}, <Time at={data.recorded_at} />)</span>}</h3>
          <DriveTable caption={text.node.drivesExpected} drives={expected} /></div>
        <div><h3>{text.node.drivesReported} <span class="quiet">(<Time at={data.reported_at} stale />)</span></h3>
          <DriveTable caption={text.node.drivesReported} drives={reported} expected={known} /></div>
      </div>
    </>
  );
}

function Certificates({ read }: { read: Read<Schemas["Certificates"]> }) {
  const all = [...(read.data?.data ?? [])].reverse();
  return (
    <>
      <ProblemText problem={read.problem} />
      <Table caption={text.node.certificates} rows={all} keyOf={(c) => c.id ?? String(c.sequence)} busy={!read.data} empty={text.node.certificatesNone} columns={[
        { label: text.node.sequence, header: true, cell: (c) => c.sequence },
        { label: text.node.verdict, cell: (c) => <><Badge status={c.verdict} />{c.simulated && <span class="quiet"> {text.nodes.simulated}</span>}</> },
        { label: text.node.issued, cell: (c) => <Time at={c.issued_at} /> },
        { label: text.node.mode, cell: (c) => words(c.run?.mode) },
        { label: text.node.devices, cell: (c) => <Devices devices={c.devices ?? []} /> },
        { label: text.node.failures, cell: (c) => (c.failures ?? []).join("; ") },
      ]} />
      {all.length > 0 && <p class="quiet">{text.node.chain}</p>}
    </>
  );
}

function Devices({ devices }: { devices: Schemas["DeviceResult"][] }) {
  if (devices.length === 0) return <span class="quiet">{text.none}</span>;
  const verified = devices.filter((d) => d.verified).length;
  return (
    <details>
      <summary>{verified} / {devices.length} {text.node.verified}</summary>
      <ul>{devices.map((d, i) => <li key={i}><Badge status={d.verified ? "verified" : "not_verified"} /> {[d.kind, d.name, d.model, d.serial, d.method, d.detail].filter(Boolean).join(" · ")}</li>)}</ul>
    </details>
  );
}

function Timeline({ id }: { id: string }) {
  return (
    <PagedTable<Schemas["TimelineEntry"]> name={id} caption={text.node.timeline} watch={[id]} empty={text.node.timelineNone} keyOf={(e) => e.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/nodes/{id}/timeline", { params: { path: { id }, query: { limit: 50, cursor: cursor || undefined } } }))}
      columns={timelineColumns} />
  );
}
