import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { duration } from "../clock";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Eta } from "../parts/Eta";
import { Facts, Heading, Section } from "../parts/Facts";
import { Json } from "../parts/Json";
import { NodeLink, Outside, To } from "../parts/Link";
import { ObservedFacts } from "../parts/ObservedFacts";
import { PagedTable } from "../parts/paged";
import { PlanView } from "../parts/PlanView";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { hasRole, session } from "../session";
import { text, words } from "../text";
import { useState } from "preact/hooks";
import type { PageProps } from ".";

type Job = Schemas["Job"];

/** JobPage shows all about one job, and the actions that are allowed on it now. */
export function JobPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/jobs/{id}", { params: { path: { id } } })));
  const job = read.data;
  useLive([id], read.again);
  if (!job) return <><Heading title={id} /><ProblemText problem={read.problem} again={() => void read.again()} />{read.loading && <p role="status">{text.loading}</p>}</>;
  return (
    <>
      <Heading title={text.job.title(words(job.kind)) + (job.hostname ? ` · ${job.hostname}` : "")}>
        <Badge status={job.status} />
        <TemporalLink job={job} />
        <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
      </Heading>
      <ProblemText problem={read.problem} again={() => void read.again()} />
      <NextAction job={job} again={() => void read.again()} />
      <div class="columns">
        <Section title={text.job.progress}><Progress job={job} /></Section>
        {job.failure_class && <Section title={text.job.failure}><Failure job={job} /></Section>}
        <Section title={text.job.observed}><ObservedFacts observed={job.observed} none={text.job.observedNone} /></Section>
        <Section title={text.node.facts}><JobFacts job={job} /></Section>
      </div>
      <Section title={text.job.stages}><Stages job={job} /></Section>
      <Section title={text.job.tries}><Tries id={id} /></Section>
      <Section title={text.job.dryRun}><DryRun id={id} /></Section>
    </>
  );
}

/** TemporalLink opens the job's workflow in the Temporal Web UI; its id contains a slash. */
function TemporalLink({ job }: { job: Job }) {
  const ui = session.value?.temporal_ui;
  if (!job.temporal_workflow_id || !ui) return null;
  const run = job.temporal_run_id ? "/" + encodeURIComponent(job.temporal_run_id) : "";
  return <Outside href={`${ui.replace(/\/+$/, "")}/workflows/${encodeURIComponent(job.temporal_workflow_id)}${run}`}>{text.job.temporal}</Outside>;
}

function NextAction({ job, again }: { job: Job; again: () => void }) {
  const allowed = job.allowed_actions ?? [];
  const first = job.recommended_action && allowed.includes(job.recommended_action) ? [job.recommended_action] : [];
  const ordered = [...first, ...allowed.filter((a) => !first.includes(a))];
  return (
    <section class="next" aria-label={text.job.next}>
      <h2>{text.job.next}</h2>
      <p>{job.recommended_action && <strong>{words(job.recommended_action)}: </strong>}{job.next_step || text.job.noNext}</p>
      {job.frozen && <p>{text.job.frozen}</p>}
      {job.waiting_outside && <p>{text.job.waiting}</p>}
      {hasRole("operator") && (
        <div class="buttons" role="group" aria-label={text.action.title}>
          {ordered.map((a) => (
            <button key={a} type="button" class={first.includes(a) ? "primary" : undefined} data-action={a} onClick={() => askJobAction(job, a, again)}>{words(a)}</button>
          ))}
          {ordered.length === 0 && <span class="quiet">{text.action.none}</span>}
        </div>
      )}
    </section>
  );
}

/** askJobAction asks for a reason and sends the action. Adopting asks for the risk to be accepted, and of a payment for what becomes of the money. */
export function askJobAction(job: { id?: string; kind?: string; hostname?: string; message?: string }, action: string, again: () => void): void {
  const id = job.id ?? "";
  const adopts = action === "adopt_observed_state";
  const ofPayment = job.kind === "payment_reconcile";
  const resolutions = Object.entries(text.job.resolutions).map(([value, label]) => ({ value, label }));
  askAction({
    title: `${words(action)}: ${job.hostname ?? id}`, button: words(action), body: text.actionMeaning[action],
    warnings: job.message ? [job.message] : undefined,
    reason: adopts ? "required" : "optional",
    danger: action === "cancel" || action === "restart_clean",
    fields: !adopts ? undefined : ofPayment ? [{ name: "resolution", label: text.job.resolution, kind: "select", required: true, options: resolutions }]
      : [{ name: "accept_risk", label: text.job.acceptRisk, kind: "check" }],
    send: async ({ reason, values, key }) => {
      const resolution = values["resolution"] as Schemas["ActionRequest"]["resolution"] | undefined;
      const body = { reason: reason || undefined, accept_risk: values["accept_risk"] === "on" ? true : undefined, resolution };
      const answer = await call(() => client.POST("/api/v1/admin/jobs/{id}/actions/{action}", { params: { path: { id, action }, header: { "Idempotency-Key": key } }, body }));
      return `${words(answer.action)}: ${words(answer.effect)}`;
    },
    done: again,
  });
}

function Progress({ job }: { job: Job }) {
  const percent = job.progress_percent ?? 0;
  return (
    <>
      <p><progress max={100} value={percent} aria-label={text.job.progress} /> {percent} %{job.reached_percent !== percent && <span class="quiet"> ({text.job.reached} {job.reached_percent} %)</span>}</p>
      <Eta eta={job.eta} />
    </>
  );
}

function Failure({ job }: { job: Job }) {
  return (
    <Facts facts={[
      [text.job.failureClass, <Badge status={job.failure_class} tone="bad" />],
      [text.job.failedStage, words(job.failed_stage)],
      [text.job.message, job.message],
      [text.job.runbook, job.runbook && <Outside href={job.runbook}>{text.job.runbook}: {words(job.failure_class)}</Outside>],
    ]} />
  );
}

function JobFacts({ job }: { job: Job }) {
  return (
    <Facts facts={[
      [text.node.id, <code>{job.id}</code>],
      [text.job.node, job.node_id && <NodeLink id={job.node_id} name={job.hostname} />],
      [text.allocations.one, job.resource_kind === "allocation" && job.resource_id && <To path={`/allocations/${encodeURIComponent(job.resource_id)}`}>{job.resource_id}</To>],
      [text.automation.machine, job.resource_kind === "machine" && job.resource_id && <To path={`/machines/${encodeURIComponent(job.resource_id)}`}>{job.resource_id}</To>],
      [text.automation.instance, job.resource_kind === "instance" && job.resource_id && <To path={`/instances/${encodeURIComponent(job.resource_id)}`}>{job.resource_id}</To>],
      [text.job.mode, words(job.mode)],
      [text.job.stage, words(job.stage)],
      [text.job.attempt, job.attempt],
      [text.job.message, job.failure_class ? undefined : job.message],
      [text.job.deadline, job.stage_deadline && <Time at={job.stage_deadline} />],
      [text.jobs.created, <Time at={job.created_at} />],
      [text.job.createdBy, job.created_by],
      [text.job.started, job.started_at && <Time at={job.started_at} />],
      [text.job.finished, job.finished_at && <Time at={job.finished_at} />],
      [text.job.batch, job.batch_id && <To path={`/batches/${encodeURIComponent(job.batch_id)}`}>{job.batch_id}</To>],
      [text.job.temporalNone, job.temporal_workflow_id && <code>{job.temporal_workflow_id}</code>],
    ]} />
  );
}

function Stages({ job }: { job: Job }) {
  return (
    <Table caption={text.job.stages} rows={job.stages ?? []} keyOf={(s) => s.name ?? ""} columns={[
      { label: text.plan.stage, header: true, cell: (s) => <>{words(s.name)}{s.name === job.stage && job.finished_at === undefined && <span class="quiet"> ◀</span>}</> },
      { label: text.job.outcome, cell: (s) => <Badge status={s.state} /> },
      { label: text.job.attempts, number: true, cell: (s) => s.attempts },
      { label: text.job.failureClass, cell: (s) => s.failure_class && <Badge status={s.failure_class} tone="bad" /> },
      { label: text.job.started, cell: (s) => s.started_at && <Time at={s.started_at} /> },
      { label: text.job.duration, cell: (s) => (s.started_at && s.finished_at ? duration((Date.parse(s.finished_at) - Date.parse(s.started_at)) / 1000) : "") },
      { label: text.job.message, cell: (s) => s.message ?? "" },
    ]} />
  );
}

function Tries({ id }: { id: string }) {
  return (
    <PagedTable name={id} caption={text.job.tries} watch={[id]} empty={text.list.none} keyOf={(l) => l.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/admin/jobs/{id}/action-logs", { params: { path: { id }, query: { limit: 50, cursor: cursor || undefined } } }))}
      columns={tryColumns} />
  );
}

/** tryColumns are those of the action log of a job or a node. */
const tryColumns: Column<Schemas["ActionLog"]>[] = [
  { label: text.plan.stage, header: true, cell: (l) => words(l.stage || l.action_type) },
  { label: text.job.try, number: true, cell: (l) => l.attempt },
  { label: text.job.outcome, cell: (l) => <Badge status={l.status} /> },
  { label: text.job.failureClass, cell: (l) => l.failure_class && <Badge status={l.failure_class} tone="bad" /> },
  { label: text.job.started, cell: (l) => <Time at={l.started_at} /> },
  { label: text.job.duration, cell: (l) => (l.duration_ms === undefined ? "" : duration(l.duration_ms / 1000)) },
  { label: text.job.detail, cell: (l) => <>{l.error_message}<Json value={l.metadata} label={text.job.detail} /></> },
];

/** DryRun asks what the job would do now; it may take twenty seconds, so it runs on demand. */
function DryRun({ id }: { id: string }) {
  const [asked, setAsked] = useState(0);
  return (
    <>
      <p><button type="button" onClick={() => setAsked(asked + 1)}>{text.job.dryRunGo}</button></p>
      {asked > 0 && <DryRunResult id={id} asked={asked} />}
    </>
  );
}

function DryRunResult({ id, asked }: { id: string; asked: number }) {
  const read = useRead(`${id} ${asked}`, () => call(() => client.GET("/api/v1/admin/jobs/{id}/plan", { params: { path: { id } } })));
  return <>{read.loading && <p role="status">{text.loading}</p>}<ProblemText problem={read.problem} />{read.data && <PlanView plan={read.data} />}</>;
}
