import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { refuse } from "../api/problem";
import { duration } from "../clock";
import { everything, pauseAfter, useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { Json } from "../parts/Json";
import { JobLink, To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { PagedTable } from "../parts/paged";
import { useRead } from "../parts/read";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { hrefOf, navigate, place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { automation } from "../textAutomation";
import type { PageProps } from ".";

type Instance = Schemas["Instance"];
type Status = NonNullable<Instance["status"]>;

const texts = automation.instance;

const tones: Record<string, "ok" | "busy" | "bad" | "quiet"> = {
  provisioning: "busy", booting: "busy", ready: "ok", draining: "busy", terminating: "busy", terminated: "quiet", archived: "quiet",
  provisioning_failed: "bad", startup_failed: "bad", failed: "bad",
};
const statuses = ["provisioning", "booting", "ready", "draining", "terminating", "terminated", "archived", "provisioning_failed", "startup_failed", "failed"] as const;

/** isMoving says whether a job changes the instance: a later job than the one that the instance names may. */
const isMoving = (i: Instance) => tones[i.status ?? ""] === "busy";

/** watched are the ids of events that concern an instance. Its own events are its project's. */
const watched = (i: Instance | undefined) => (i && isMoving(i) ? [everything] : [i?.job_id ?? ""]);

function StatusBadge({ status }: { status: string | undefined }) {
  return <Badge status={status} tone={tones[status ?? ""]} />;
}

function Progress({ instance: i }: { instance: Instance }) {
  const percent = i.progress_percent ?? 0;
  return <span data-progress={percent}><progress max={100} value={percent} aria-label={`${texts.progress}: ${i.name ?? ""}`} /> {percent} %</span>;
}

const columns: Column<Instance>[] = [
  { label: texts.one, header: true, cell: (i) => <To path={`/instances/${encodeURIComponent(i.id ?? "")}`} row>{i.name}</To> },
  { label: texts.status, cell: (i) => <StatusBadge status={i.status} /> },
  { label: texts.progress, cell: (i) => <Progress instance={i} /> },
  { label: texts.error, cell: (i) => words(i.error_code) },
  { label: texts.project, cell: (i) => <To path={`/projects/${encodeURIComponent(i.project_id ?? "")}`}>{i.project_id}</To> },
  { label: texts.provider, cell: (i) => `${i.provider ?? ""} ${i.zone ?? ""}` },
  { label: texts.type, cell: (i) => i.type },
  { label: texts.model, cell: (i) => i.model },
  { label: texts.created, cell: (i) => <Time at={i.created_at} /> },
];

/** Instances lists instances with how far each is. */
export function Instances() {
  const of = (name: string) => place.value.query.get(name) ?? undefined;
  const list = useList<Instance>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/instances", { params: { query: {
      limit: 50, cursor: cursor || undefined, status: statuses.find((s) => s === of("status")), project_id: of("project_id"), archived: of("archived") === "true" || undefined,
    } } })),
    idOf: (i) => i.id ?? "", watch: watched, kinds: ["job"],
  });
  return (
    <>
      <Heading title={text.automation.instances}>
        {hasRole("operator") && <div class="buttons"><button type="button" class="primary" onClick={() => void askInstance()}>{texts.make}</button></div>}
      </Heading>
      <FilterForm fields={[
        { name: "status", label: texts.status, options: statuses.map((s) => ({ value: s, label: words(s) })) },
        { name: "project_id", label: texts.project },
        { name: "archived", label: texts.archived, options: [{ value: "true", label: texts.archivedOnly }] },
      ]} />
      <ListTable list={list} caption={texts.caption} columns={columns} empty={texts.none} />
    </>
  );
}

/** InstancePage shows one instance: how far it is, how it moved, and what was done for it. */
export function InstancePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/instances/{instance_id}", { params: { path: { instance_id: id } } })));
  const again = () => void read.again();
  const ids = watched(read.data);
  useLive(ids, pauseAfter(1000, read.again));
  return (
    <Loaded read={read} title={id}>
      {(i) => (
        <>
          <Heading title={`${texts.one}: ${i.name ?? id}`}>
            <StatusBadge status={i.status} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale={isMoving(i)} /></span>
            {hasRole("operator") && !ended.includes(i.status) && <div class="buttons"><button type="button" class="danger" onClick={() => askTerminate(i, again)}>{texts.terminate}</button></div>}
          </Heading>
          <div class="columns">
            <Section title={texts.progress}>
              <p><Progress instance={i} /></p>
              {i.reached_percent !== i.progress_percent && <p class="quiet">{texts.reached(i.reached_percent ?? 0)}</p>}
            </Section>
            {(i.error_code || i.error_message) && <Section title={texts.failure}><Facts facts={[[texts.code, words(i.error_code)], [texts.stage, words(i.failed_stage)], [texts.message, i.error_message]]} /></Section>}
            <Section title={text.node.facts}><InstanceFacts instance={i} /></Section>
          </div>
          <Section title={texts.log}><Actions id={id} watch={ids} /></Section>
          <Section title={texts.history}><History id={id} watch={ids} /></Section>
        </>
      )}
    </Loaded>
  );
}

const ended: (Status | undefined)[] = ["terminating", "terminated", "archived"];

function InstanceFacts({ instance: i }: { instance: Instance }) {
  const at = (when: string | undefined) => when && <Time at={when} />;
  return (
    <Facts facts={[
      [text.node.id, <code>{i.id}</code>], [texts.project, <To path={`/projects/${encodeURIComponent(i.project_id ?? "")}`}>{i.project_id}</To>],
      [texts.provider, i.provider], [texts.zone, i.zone], [texts.type, i.type], [texts.image, i.image], [texts.model, i.model],
      [texts.job, <JobLink id={i.job_id} />], [texts.server, i.server_id && <code>{i.server_id}</code>], [texts.ip, i.ip_address], [texts.hostKey, i.host_key && <code>{i.host_key}</code>],
      [texts.heartbeat, at(i.heartbeat_at)], [texts.checked, at(i.last_health_check)], [texts.checksum, i.agent_checksum && <code>{i.agent_checksum}</code>], [texts.verified, at(i.agent_verified_at)],
      [texts.deleted, i.deleted_by_provider], [texts.created, at(i.created_at)], [texts.ready, at(i.ready_at)], [texts.failed, at(i.failed_at)], [texts.ended, at(i.terminated_at)],
    ]} />
  );
}

function Actions({ id, watch }: { id: string; watch: string[] }) {
  return (
    <PagedTable name={id} caption={texts.log} watch={watch} empty={texts.logNone} keyOf={(a) => a.id ?? ""} columns={actionColumns}
      read={(cursor) => call(() => client.GET("/api/v1/admin/instances/{instance_id}/action-logs", { params: { path: { instance_id: id }, query: { limit: 50, cursor: cursor || undefined } } }))} />
  );
}

const actionColumns: Column<Schemas["InstanceAction"]>[] = [
  { label: texts.action, header: true, cell: (a) => words(a.action_type) },
  { label: texts.status, cell: (a) => <Badge status={a.status} /> },
  { label: texts.attempt, number: true, cell: (a) => a.attempt },
  { label: texts.at, cell: (a) => <Time at={a.started_at} /> },
  { label: texts.took, cell: (a) => (a.duration_ms === undefined ? "" : duration(a.duration_ms / 1000)) },
  { label: texts.detail, cell: (a) => <>{a.error_message}<Json value={a.metadata} label={texts.detail} /></> },
];

function History({ id, watch }: { id: string; watch: string[] }) {
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/instances/{instance_id}/history", { params: { path: { instance_id: id } } })));
  useLive(watch, pauseAfter(2000, read.again));
  return (
    <Table caption={texts.history} rows={read.data?.data ?? []} keyOf={(_, n) => String(n)} empty={texts.historyNone} busy={read.loading && !read.data} columns={[
      { label: texts.to, header: true, cell: (m) => <StatusBadge status={m.to_status} /> },
      { label: texts.from, cell: (m) => words(m.from_status) },
      { label: texts.action, cell: (m) => words(m.name) },
      { label: texts.why, cell: (m) => m.reason },
      { label: texts.at, cell: (m) => <Time at={m.created_at} /> },
    ]} />
  );
}

function askTerminate(i: Instance, again: () => void): void {
  askAction({
    title: `${texts.terminate}: ${i.name ?? ""}`, button: texts.terminate, body: texts.terminateHelp, reason: "required", reasonMax: 500, danger: true, done: again, confirmName: i.name,
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/admin/instances/{instance_id}/terminate", { params: { path: { instance_id: i.id ?? "" } }, body: { reason } }));
      return texts.terminating;
    },
  });
}

/** askInstance asks what instance to make, for which project. */
async function askInstance(): Promise<void> {
  const types = await call(() => client.GET("/api/v1/admin/instance-types")).then((list) => list.data ?? [], () => []);
  const offers = types.flatMap((t) => (t.zones ?? []).map((zone) => ({ value: JSON.stringify([t.provider, zone, t.name]), label: `${t.name ?? ""}: ${t.gpu ?? ""}, ${t.provider ?? ""} ${zone}` })));
  askAction({
    title: texts.make, button: texts.make, body: texts.makeHelp, reason: "none", warnings: offers.length === 0 ? [texts.noOffer] : undefined,
    fields: [
      { name: "project_id", label: texts.project, kind: "text", required: true, help: texts.projectHelp },
      { name: "name", label: texts.name, kind: "text", required: true, max: 63 },
      { name: "where", label: texts.where, kind: "select", required: true, options: offers },
      { name: "model", label: texts.model, kind: "text", required: true, help: texts.modelHelp },
      { name: "drain", label: texts.drain, kind: "number", max: 86400 },
    ],
    send: async ({ values, key }) => {
      if (!values["where"]) refuse(texts.noOffer);
      const [provider = "", zone = "", type = ""] = JSON.parse(values["where"]) as string[];
      const made = await call(() => client.POST("/api/v1/admin/instances", { params: { header: { "Idempotency-Key": key } }, body: {
        project_id: values["project_id"] ?? "", name: values["name"] ?? "", provider, zone, type, model: values["model"] ?? "", drain_seconds: values["drain"] ? Number(values["drain"]) : undefined,
      } }));
      navigate(hrefOf(`/instances/${encodeURIComponent(made.id ?? "")}`));
      return texts.made(made.name ?? "");
    },
  });
}
