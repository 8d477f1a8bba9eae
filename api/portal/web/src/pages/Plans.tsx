import { ask } from "../api/connect";
import { kindOf } from "../api/machines";
import type { ListPlansResponse, Plan, Step } from "../api/machines";
import { duration } from "../clock";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { ListTable, useList } from "../parts/list";
import { useRead } from "../parts/read";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { text, words } from "../text";
import { automation } from "../textAutomation";
import type { PageProps } from ".";

const texts = automation.plan;

const columns: Column<Plan>[] = [
  { label: text.automation.plan, header: true, cell: (p) => <To path={`/plans/${encodeURIComponent(p.plan_id)}`} row>{p.plan_id}</To> },
  { label: texts.name, cell: (p) => p.display_name },
  { label: texts.steps, cell: (p) => p.steps.map((s) => s.name).join(" → ") },
  { label: texts.startable, cell: (p) => p.startable_by || "operator" },
];

/** Plans lists the plans of runs. */
export function Plans() {
  const list = useList<Plan>({
    read: async (cursor) => {
      const page = await ask<ListPlansResponse>("PlanService/ListPlans", { page_size: 50, page_token: cursor });
      return { data: page.plans, next_cursor: page.next_page_token };
    },
    idOf: (p) => p.plan_id, kinds: [],
  });
  return (
    <>
      <Heading title={text.automation.plans} />
      <p class="quiet">{texts.intro}</p>
      <ListTable list={list} caption={texts.caption} columns={columns} />
    </>
  );
}

/** PlanPage shows one plan with its steps. */
export function PlanPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => ask<Plan>("PlanService/GetPlan", { plan_id: id }));
  return (
    <Loaded read={read} title={id}>
      {(p) => (
        <>
          <Heading title={`${text.automation.plan}: ${p.display_name || p.plan_id}`} />
          <Facts facts={[
            [text.node.id, <code>{p.plan_id}</code>], [texts.startable, p.startable_by || "operator"],
            [automation.machine.runs, <To path="/runs" query={{ plan_id: p.plan_id }}>{automation.run.caption}</To>],
          ]} />
          <Section title={texts.steps}><Table caption={texts.steps} rows={p.steps} keyOf={(s) => s.name} columns={stepColumns} /></Section>
        </>
      )}
    </Loaded>
  );
}

const stepColumns: Column<Step>[] = [
  { label: automation.run.step, header: true, cell: (s) => s.name },
  { label: texts.kind, cell: (s) => kindOf(s) },
  { label: texts.parameters, cell: (s) => <Parameters step={s} /> },
  { label: texts.timeout, cell: (s) => (s.timeout_seconds === undefined ? texts.byKind : duration(s.timeout_seconds)) },
  { label: texts.retries, cell: (s) => s.max_retries ?? texts.byKind },
];

/** Parameters shows what a step does: the script of a command whole. */
function Parameters({ step }: { step: Step }) {
  const kind = kindOf(step);
  if (step.ssh) return <><pre role="group" tabIndex={0} aria-label={`${texts.parameters}: ${step.name}`}>{step.ssh.command}</pre>{step.ssh.idempotent && <p class="quiet">{texts.idempotent}</p>}</>;
  const values = Object.entries((step as unknown as Record<string, object | undefined>)[kind] ?? {}).filter(([, value]) => value !== "" && value !== 0 && value !== false);
  return <ul class="lines">{values.map(([name, value]) => <li key={name}>{`${words(name)}: ${String(value)}`}</li>)}</ul>;
}
