import { ask } from "../api/connect";
import { filterOf, kindOf, machinePhases, runTypes } from "../api/machines";
import type { Condition, ListMachinesResponse, ListPlansResponse, ListRunsResponse, Machine, Plan, Run } from "../api/machines";
import { everything, pauseAfter, useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { PagedTable } from "../parts/paged";
import { useRead } from "../parts/read";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { useRepeated } from "../parts/repeated";
import { hrefOf, navigate, place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { automation } from "../textAutomation";
import { runColumns } from "./Runs";
import type { PageProps } from ".";

const texts = automation.machine;

const tones = { FACTORY_READY: "quiet", READY: "ok", PROVISIONING: "busy", IN_SERVICE: "ok", MAINTENANCE: "warn", RMA: "bad", RETIRED: "quiet" } as const;

const bannerNames = ["NeedsIntervention", "Degraded"];

const probedEvery = 30_000; // milliseconds; conditions change without an event

/** MachineBadge shows the phase or the effective state of a machine. */
export function MachineBadge({ state }: { state: string }) {
  return <Badge status={state} tone={tones[state as keyof typeof tones]} />;
}

/** MachineLink links to a machine by its id. */
export function MachineLink({ id, row }: { id: string; row?: boolean }) {
  return <To path={`/machines/${encodeURIComponent(id)}`} row={row}>{id}</To>;
}

/** Banners shows what requires attention, in the order of the API. */
function Banners({ names }: { names: string[] }) {
  return <>{names.map((name) => <> <Badge key={name} status={name} tone={name === "Degraded" ? "warn" : "bad"} /></>)}</>;
}

const columns: Column<Machine>[] = [
  { label: text.automation.machine, header: true, cell: (m) => <MachineLink id={m.machine_id} row /> },
  { label: texts.state, cell: (m) => <MachineBadge state={m.status.effective_state} /> },
  { label: texts.banners, cell: (m) => <Banners names={m.status.banners} /> },
  { label: texts.run, cell: (m) => m.status.active_run_id && <To path={`/runs/${encodeURIComponent(m.status.active_run_id)}`}>{m.status.active_run_id}</To> },
  { label: texts.provider, cell: (m) => m.spec.provider },
  { label: texts.customer, cell: (m) => m.customer_id && <To path={`/projects/${encodeURIComponent(m.customer_id)}`}>{m.customer_id}</To> },
  { label: texts.location, cell: (m) => [m.spec.location, m.spec.rack].filter((part) => part).join(" · ") },
];

/** Machines lists the machines of automation with their effective state and banners. */
export function Machines() {
  const of = (name: string) => place.value.query.get(name);
  const filter = filterOf([["effective_state", of("effective_state")], [bannerNames.find((b) => b === of("banner")) ?? "", of("banner") && "true"], ["provider", of("provider")], ["customer_id", of("customer_id")]]);
  const list = useList<Machine>({
    read: async (cursor) => {
      const page = await ask<ListMachinesResponse>("MachineService/ListMachines", { filter, page_size: 50, page_token: cursor });
      return { data: page.machines, next_cursor: page.next_page_token };
    },
    idOf: (m) => m.machine_id, watch: () => [everything], kinds: ["run"],
  });
  return (
    <>
      <Heading title={text.automation.machines} />
      <p class="quiet">{texts.intro}</p>
      <FilterForm fields={[
        { name: "effective_state", label: texts.state, options: machinePhases.map((p) => ({ value: p, label: words(p) })) },
        { name: "banner", label: texts.banner, options: bannerNames.map((b) => ({ value: b, label: b })) },
        { name: "provider", label: texts.provider },
        { name: "customer_id", label: texts.customer },
      ]} />
      <ListTable list={list} caption={texts.caption} columns={columns} empty={texts.none} />
    </>
  );
}

/** MachinePage shows one machine: its state, what was observed of it, and its runs. */
export function MachinePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => ask<Machine>("MachineService/GetMachine", { machine_id: id }));
  const again = () => void read.again();
  useLive([everything], pauseAfter(2000, read.again)); // a machine follows its runs and its node
  useRepeated(probedEvery, read.again);
  return (
    <Loaded read={read} title={id}>
      {(m) => (
        <>
          <Heading title={`${text.automation.machine}: ${m.machine_id}`}>
            <MachineBadge state={m.status.effective_state} />
            <Banners names={m.status.banners} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
            {hasRole("operator") && <div class="buttons"><button type="button" class="primary" onClick={() => void askRun(m, again)}>{automation.run.start}</button></div>}
          </Heading>
          <BannerNotes machine={m} />
          <div class="columns">
            <Section title={texts.state}><StateFacts machine={m} /></Section>
            <Section title={texts.facts}><SpecFacts machine={m} /></Section>
          </div>
          <Section title={texts.conditions}>
            <Table caption={texts.conditions} rows={m.status.conditions} keyOf={(c) => c.type} empty={texts.conditionsNone} columns={conditionColumns} />
          </Section>
          <Section title={texts.runs}><RunsOf machine={m.machine_id} /></Section>
        </>
      )}
    </Loaded>
  );
}

/** BannerNotes says of each banner why it is there and where to go. */
function BannerNotes({ machine: m }: { machine: Machine }) {
  if (m.status.banners.length === 0) return null;
  return (
    <section class="warnings" aria-label={texts.banners}>
      {m.status.banners.map((name) => {
        const found = m.status.conditions.find((c) => c.type === name);
        return (
          <p key={name}>
            <strong><span aria-hidden="true">▲ </span>{name}</strong>{found && <> ({found.reason}, <Time at={found.last_transition} />)</>}. {texts.bannerHelp[name]}{" "}
            {name === "Degraded" ? <To path="/drift">{text.drift.title}</To> : <To path="/attention">{text.attention.title}</To>}
          </p>
        );
      })}
    </section>
  );
}

function StateFacts({ machine: m }: { machine: Machine }) {
  const run = m.status.active_run_id;
  return (
    <>
      <Facts facts={[
        [texts.state, <MachineBadge state={m.status.effective_state} />], [texts.phase, <MachineBadge state={m.status.phase} />],
        [texts.run, run && <To path={`/runs/${encodeURIComponent(run)}`}>{run}</To>],
        [texts.customer, m.customer_id && <To path={`/projects/${encodeURIComponent(m.customer_id)}`}>{m.customer_id}</To>],
      ]} />
      {m.status.phase !== m.status.effective_state && <p class="quiet">{texts.phaseNote(words(m.status.phase))}</p>}
    </>
  );
}

function SpecFacts({ machine: m }: { machine: Machine }) {
  const s = m.spec;
  const labels = Object.entries(m.labels);
  return (
    <Facts facts={[
      [texts.provider, s.provider], [texts.ssh, s.ssh_endpoint && <code>{s.ssh_endpoint}</code>], [texts.bmc, s.bmc_endpoint && <code>{s.bmc_endpoint}</code>],
      [texts.macs, s.mac_addresses.join(", ")], [texts.cluster, s.target_cluster_ref], [texts.location, s.location], [texts.rack, s.rack], [texts.serial, s.serial],
      [texts.labels, labels.length > 0 && <ul class="lines">{labels.map(([name, value]) => <li key={name}>{`${name}=${value}`}</li>)}</ul>],
    ]} />
  );
}

const unknownReason = "Unknown";

const conditionColumns: Column<Condition>[] = [
  { label: texts.condition, header: true, cell: (c) => c.type },
  { label: texts.holds, cell: (c) => <Holds condition={c} /> },
  { label: texts.reason, cell: (c) => c.reason },
  { label: texts.since, cell: (c) => <Time at={c.last_transition} /> },
];

/** Holds says whether a condition holds. One whose last probe gave no answer shows its last status as that. */
function Holds({ condition: c }: { condition: Condition }) {
  const value = c.status ? text.yes : text.no;
  if (c.reason === unknownReason) return <Badge status={texts.unknown + value} tone="warn" />;
  const isBad = c.status === bannerNames.includes(c.type); // banners are bad when they hold, the others when they do not
  return <Badge status={value} tone={!isBad ? "ok" : c.type === "NeedsIntervention" || c.type === "Reachable" ? "bad" : bannerNames.includes(c.type) ? "warn" : "quiet"} />;
}

function RunsOf({ machine }: { machine: string }) {
  return (
    <PagedTable<Run> name={machine} caption={texts.runs} watch={[everything]} empty={texts.runsNone} keyOf={(r) => r.run_id} columns={runColumns.filter((c) => c.label !== automation.run.machine)}
      read={async (cursor) => {
        const page = await ask<ListRunsResponse>("RunService/ListRuns", { filter: filterOf([["machine_id", machine]]), page_size: 20, page_token: cursor });
        return { data: page.runs, next_cursor: page.next_page_token };
      }} />
  );
}

const mostPlans = 1000; // of the choice of a plan

/** askRun asks for the type and the plan of a run, and starts it. */
async function askRun(m: Machine, again: () => void): Promise<void> {
  const texts = automation.run;
  const plans = await ask<ListPlansResponse>("PlanService/ListPlans", { page_size: mostPlans }).then((page) => page.plans, (): Plan[] => []);
  askAction({
    title: `${texts.start}: ${m.machine_id}`, button: texts.start, body: texts.startHelp, reason: "none", done: again,
    fields: [
      { name: "type", label: texts.type, kind: "select", required: true, options: runTypes.map((t) => ({ value: t, label: words(t) })) },
      { name: "plan", label: texts.plan, kind: "select", help: texts.planHelp, options: [{ value: "", label: texts.defaultPlan }, ...plans.map((p) => ({ value: p.plan_id, label: planLabel(p) }))] },
      { name: "accept_risk", label: texts.acceptRisk, kind: "check", help: texts.acceptRiskHelp },
    ],
    send: async ({ values, key }) => {
      const run = await ask<Run>("RunService/StartRun", { request_id: key, machine_id: m.machine_id, type: values["type"], plan_id: values["plan"], accept_risk: values["accept_risk"] === "on" });
      navigate(hrefOf(`/runs/${encodeURIComponent(run.run_id)}`));
      return texts.begun(run.run_id);
    },
  });
}

function planLabel(p: Plan): string {
  return `${p.display_name || p.plan_id} (${p.steps.map((s) => kindOf(s)).join(", ")})`.slice(0, 120);
}
