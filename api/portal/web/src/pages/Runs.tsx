import { ask } from "../api/connect";
import { filterOf, isActive, runPhases, runTypes } from "../api/machines";
import type { ListRunsResponse, Run } from "../api/machines";
import { duration } from "../clock";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { useRead } from "../parts/read";
import { useRepeated } from "../parts/repeated";
import { RunOutput } from "../parts/RunOutput";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { automation } from "../textAutomation";
import { MachineLink } from "./Machines";
import type { PageProps } from ".";

const texts = automation.run;

const tones = { PENDING: "quiet", WAITING: "quiet", RUNNING: "busy", SUCCEEDED: "ok", FAILED: "bad", CANCELED: "warn" } as const;

/** RunBadge shows the phase of a run or the state of a step. */
export function RunBadge({ state }: { state: string }) {
  return <Badge status={state} tone={tones[state as keyof typeof tones]} />;
}

function RunLink({ id, row }: { id: string; row?: boolean }) {
  return <To path={`/runs/${encodeURIComponent(id)}`} row={row}>{id}</To>;
}

function PlanLink({ id }: { id: string }) {
  return <To path={`/plans/${encodeURIComponent(id)}`}>{id}</To>;
}

/** runColumns are those of each list of runs. */
export const runColumns: Column<Run>[] = [
  { label: texts.one, header: true, cell: (r) => <RunLink id={r.run_id} row /> },
  { label: texts.machine, cell: (r) => <MachineLink id={r.machine_id} /> },
  { label: texts.type, cell: (r) => words(r.type) },
  { label: texts.phase, cell: (r) => <RunBadge state={r.phase} /> },
  { label: texts.step, cell: (r) => r.current_step },
  { label: texts.plan, cell: (r) => <PlanLink id={r.plan_id} /> },
  { label: texts.created, cell: (r) => <Time at={r.created_at} /> },
  { label: texts.took, cell: (r) => took(r) },
];

/** took says how long a run or a step has taken, once it has ended. */
function took(row: { started_at?: string; finished_at?: string }): string {
  return row.started_at && row.finished_at ? duration((Date.parse(row.finished_at) - Date.parse(row.started_at)) / 1000) : "";
}

/** Runs lists runs, the newest first. */
export function Runs() {
  const of = (name: string) => place.value.query.get(name);
  const filter = filterOf([["phase", of("phase")], ["type", of("type")], ["machine_id", of("machine_id")], ["plan_id", of("plan_id")]]);
  const list = useList<Run>({
    read: async (cursor) => {
      const page = await ask<ListRunsResponse>("RunService/ListRuns", { filter, page_size: 50, page_token: cursor });
      return { data: page.runs, next_cursor: page.next_page_token };
    },
    idOf: (r) => r.run_id, kinds: ["run"],
  });
  const choices = (all: string[]) => all.map((s) => ({ value: s, label: words(s) }));
  return (
    <>
      <Heading title={text.automation.runs} />
      <FilterForm fields={[
        { name: "phase", label: texts.phase, options: choices(runPhases) },
        { name: "type", label: texts.type, options: choices(runTypes) },
        { name: "machine_id", label: texts.machine },
        { name: "plan_id", label: texts.plan },
      ]} />
      <ListTable list={list} caption={texts.caption} columns={runColumns} empty={texts.none} />
    </>
  );
}

const readEvery = 15_000; // milliseconds between two reads of an active run, where no event comes

/** RunPage shows one run with its steps, and its output as it comes. */
export function RunPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => ask<Run>("RunService/GetRun", { run_id: id }));
  const again = () => void read.again();
  useLive([id], read.again);
  useRepeated(readEvery, async () => { if (!read.data || isActive(read.data)) await read.again(); });
  return (
    <Loaded read={read} title={id}>
      {(r) => (
        <>
          <Heading title={`${texts.one}: ${words(r.type)} · ${r.machine_id}`}>
            <RunBadge state={r.phase} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale={isActive(r)} /></span>
            {hasRole("operator") && isActive(r) && <div class="buttons"><button type="button" class="danger" onClick={() => askCancel(r, again)}>{texts.cancel}</button></div>}
          </Heading>
          <Section title={text.node.facts}>
            <Facts facts={[
              [text.node.id, <code>{r.run_id}</code>], [texts.machine, <MachineLink id={r.machine_id} />], [texts.plan, <PlanLink id={r.plan_id} />],
              [texts.step, r.current_step], [texts.created, <Time at={r.created_at} />], [texts.started, r.started_at && <Time at={r.started_at} />],
              [texts.finished, r.finished_at && <Time at={r.finished_at} />], [texts.took, took(r)], [texts.request, r.request_id],
              [texts.retryOf, r.retry_of && <RunLink id={r.retry_of} />],
            ]} />
            {isActive(r) && <p class="quiet">{texts.waits} <To path="/jobs" query={{ kind: "machine_run", needs_human: "true" }}>{texts.jobs}</To></p>}
          </Section>
          <Section title={texts.steps}>
            <Table caption={texts.steps} rows={r.steps} keyOf={(s) => s.name} columns={[
              { label: texts.step, header: true, cell: (s) => s.name },
              { label: texts.state, cell: (s) => <RunBadge state={s.state} /> },
              { label: texts.retries, number: true, cell: (s) => s.retry_count || "" },
              { label: texts.started, cell: (s) => s.started_at && <Time at={s.started_at} /> },
              { label: texts.took, cell: (s) => took(s) },
              { label: texts.message, cell: (s) => s.message },
            ]} />
          </Section>
          <Section title={automation.log.title}><RunOutput runId={r.run_id} moved={again} /></Section>
        </>
      )}
    </Loaded>
  );
}

function askCancel(r: Run, again: () => void): void {
  askAction({
    title: `${texts.cancel}: ${r.run_id}`, button: texts.cancel, body: texts.cancelHelp, reason: "none", danger: true, done: again,
    send: async () => texts.cancelled(words((await ask<Run>("RunService/CancelRun", { run_id: r.run_id })).phase)),
  });
}
