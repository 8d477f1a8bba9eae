import { useRef, useState } from "preact/hooks";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { asProblem, ProblemError } from "../api/problem";
import type { Problem } from "../api/problem";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Heading, Section } from "../parts/Facts";
import { SelectField, TextField } from "../parts/Field";
import { JobLink, NodeLink } from "../parts/Link";
import { PlanView } from "../parts/PlanView";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import { hrefOf, navigate } from "../router";
import { text, words } from "../text";
import type { PageProps } from ".";

type Mode = Schemas["DecommissionRequest"]["mode"];

interface Planned {
  plan: Schemas["Plan"];
  mode: Mode;
  grace: number | undefined;
}

/** DecommissionPage plans a decommission, shows the plan and its hash, and starts what was planned. */
export function DecommissionPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/nodes/{id}", { params: { path: { id } } })));
  const node = read.data;
  const title = `${text.decommission.title} · ${node?.hostname ?? id}`;
  if (!node) return <><Heading title={title} /><ProblemText problem={read.problem} again={() => void read.again()} />{read.loading && <p role="status">{text.loading}</p>}</>;
  const modes = node.allowed_decommissions ?? [];
  return (
    <>
      <Heading title={title}><Badge status={node.status} /><NodeLink id={id} name={text.jobs.node} /></Heading>
      {modes.length === 0 ? <p>{text.decommission.notAllowed}</p> : <PlanForm id={id} hostname={node.hostname ?? id} modes={modes as Mode[]} />}
    </>
  );
}

function PlanForm({ id, hostname, modes }: { id: string; hostname: string; modes: Mode[] }) {
  const [mode, setMode] = useState<Mode>(modes[0] ?? "soft_reset");
  const [grace, setGrace] = useState("");
  const [planned, setPlanned] = useState<Planned>();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);

  async function makePlan(): Promise<void> {
    const asked = { mode, grace: grace ? Number(grace) : undefined };
    const now = ++turn.current;
    setBusy(true);
    setProblem(undefined);
    try {
      const plan = await call(() => client.POST("/api/v1/admin/decommissions/plan", { body: { node_id: id, mode: asked.mode, grace_seconds: asked.grace } }));
      if (turn.current === now) setPlanned({ plan, ...asked });
    } catch (error) {
      if (turn.current !== now) return;
      setPlanned(undefined);
      setProblem(asProblem(error));
    } finally {
      if (turn.current === now) setBusy(false);
    }
  }
  function change(set: () => void): void {
    set();
    turn.current++; // an answer for the old form no longer counts
    setPlanned(undefined);
    setBusy(false);
  }
  return (
    <>
      <form class="form stack" onSubmit={(e) => { e.preventDefault(); void makePlan(); }}>
        <p>{text.decommission.intro}</p>
        <SelectField label={text.decommission.mode} name="mode" value={mode} help={text.actionMeaning[mode]}
          onChange={(e) => { const chosen = e.currentTarget.value as Mode; change(() => setMode(chosen)); }}>
          {modes.map((m) => <option key={m} value={m}>{words(m)}</option>)}
        </SelectField>
        <TextField label={text.decommission.grace} name="grace" type="number" min={0} max={86400} value={grace}
          onInput={(e) => { const given = e.currentTarget.value; change(() => setGrace(given)); }} />
        <div class="buttons"><button type="submit" class={planned ? undefined : "primary"} aria-disabled={busy}>{busy ? text.loading : planned ? text.plan.again : text.plan.make}</button></div>
      </form>
      <ProblemText problem={problem} />
      {planned && (
        <Section title={text.plan.title}>
          <PlanView plan={planned.plan} />
          <div class="buttons"><button type="button" class="danger" onClick={() => askStart(id, hostname, planned, () => void makePlan())}>{text.decommission.start}</button></div>
        </Section>
      )}
    </>
  );
}

/** askStart starts exactly what was planned: the server refuses when the plan says something else now. */
function askStart(id: string, hostname: string, { plan, mode, grace }: Planned, planAgain: () => void): void {
  askAction({
    title: `${text.decommission.confirm(words(mode))}: ${hostname}`, button: text.decommission.start, danger: true, reason: "required",
    body: <><p>{text.actionMeaning[mode]}</p><p>{plan.summary}</p><p>{text.plan.hash}: <code>{plan.plan_hash}</code></p><p>{text.decommission.confirmBody}</p></>,
    warnings: (plan.rows ?? []).flatMap((r) => (r.failure?.message ? [`${words(r.stage)}: ${r.failure.message}`] : [])),
    confirmName: hostname,
    send: async ({ reason, key }) => {
      const body = { node_id: id, mode, grace_seconds: grace, plan_hash: plan.plan_hash, reason };
      try {
        const job = await call(() => client.POST("/api/v1/admin/decommissions", { params: { header: { "Idempotency-Key": key } }, body }));
        navigate(hrefOf(`/jobs/${encodeURIComponent(job.id ?? "")}`));
        return <>{text.action.started} <JobLink id={job.id} /></>;
      } catch (error) {
        if (error instanceof ProblemError && error.problem.plan_hash) planAgain();
        throw error;
      }
    },
  });
}
