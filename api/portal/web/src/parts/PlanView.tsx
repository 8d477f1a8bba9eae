import type { Schemas } from "../api/client";
import { text, words } from "../text";
import { Badge } from "./Badge";
import { bytes, Facts } from "./Facts";
import { Table } from "./Table";
import { Time } from "./Time";

/** PlanView shows what a job would do, stage by stage, and the hash that a later start must match. */
export function PlanView({ plan }: { plan: Schemas["Plan"] }) {
  return (
    <div data-testid="plan">
      <Facts facts={[
        [text.plan.summary, plan.summary],
        [text.nodes.hostname, plan.hostname],
        [text.plan.hash, plan.plan_hash && <code>{plan.plan_hash}</code>],
        [text.plan.made, <Time at={plan.observed_at} stale />],
      ]} />
      {plan.needs_human && <p class="warnings"><strong><span aria-hidden="true">▲ </span>{text.plan.needsHuman}</strong></p>}
      <Table caption={text.plan.title} rows={plan.rows ?? []} keyOf={(r) => String(r.ordinal)} columns={[
        { label: text.plan.stage, header: true, cell: (r) => words(r.stage) },
        { label: text.plan.would, cell: (r) => <Badge status={r.would} /> },
        { label: text.plan.why, cell: (r) => r.why ?? "" },
        { label: text.plan.steps, cell: (r) => <Lines lines={r.steps} /> },
        { label: text.plan.seen, cell: (r) => r.seen ?? "" },
        { label: text.plan.fails, cell: (r) => r.failure && <><Badge status={r.failure.class} tone="bad" /> {r.failure.message} {r.failure.next_step}</> },
      ]} />
      {plan.drives && plan.drives.length > 0 && (
        <>
          <h3>{text.plan.drives}{plan.drives_from && <span class="quiet"> ({words(plan.drives_from)})</span>}</h3>
          <DriveTable caption={text.plan.drives} drives={plan.drives} />
        </>
      )}
      {plan.protect_serials && plan.protect_serials.length > 0 && <p>{text.plan.protectedDrives}: {plan.protect_serials.join(", ")}</p>}
    </div>
  );
}

/** DriveTable lists drives with their serial numbers. */
export function DriveTable({ caption, drives, expected }: { caption: string; drives: Schemas["PlanDrive"][]; expected?: Set<string> }) {
  return (
    <Table caption={caption} rows={drives} keyOf={(d, i) => d.serial ?? String(i)} columns={[
      { label: text.node.serial, header: true, cell: (d) => d.serial ?? text.unknown },
      { label: text.node.model, cell: (d) => d.model ?? "" },
      { label: text.node.size, cell: (d) => bytes(d.bytes) },
      { label: text.node.protected, cell: (d) => (d.protected ? text.yes : text.no) },
      ...(expected ? [{ label: text.node.expectedToo, cell: (d: Schemas["PlanDrive"]) => (expected.has(d.serial ?? "") ? text.yes : <Badge status="no" tone="warn" />) }] : []),
    ]} />
  );
}

function Lines({ lines }: { lines: string[] | null | undefined }) {
  if (!lines || lines.length === 0) return null;
  return <ul class="lines">{lines.map((l, i) => <li key={i}>{l}</li>)}</ul>;
}
