import { useRef, useState } from "preact/hooks";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { asProblem, ProblemError } from "../api/problem";
import type { Problem } from "../api/problem";
import { askAction } from "../parts/ActionForm";
import { Facts, Heading, Section } from "../parts/Facts";
import { SelectField, TextField } from "../parts/Field";
import type { FormField } from "../parts/FormField";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { money } from "../parts/money";
import { choicesOf, nameOf, useSkus } from "../parts/named";
import type { Named } from "../parts/named";
import { ProblemText } from "../parts/ProblemText";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { hrefOf, navigate, place } from "../router";
import { hasRole } from "../session";
import { text } from "../text";
import { billing } from "../textBilling";

type Price = Schemas["Price"];
type Plan = Schemas["PricePlan"];
type Asked = Schemas["PricePlanRequest"];

const columns = (skus: Named[]): Column<Price>[] => [
  { label: text.nodes.sku, header: true, cell: (p) => <To path={`/skus/${encodeURIComponent(p.sku_id ?? "")}`} row>{nameOf(skus, p.sku_id)}</To> },
  { label: billing.rate, number: true, cell: (p) => money(p.rate_minor_per_hour, p.exponent, p.currency) },
  { label: billing.valid, cell: (p) => <Time at={p.valid_from} /> },
  { label: billing.validUntil, cell: (p) => p.valid_until && <Time at={p.valid_until} /> },
  { label: billing.setBy, cell: (p) => p.set_by ?? "" },
];

/** Prices lists the prices of SKUs, past and future ones too. */
export function Prices() {
  const skus = useSkus();
  const of = (name: string) => place.value.query.get(name) ?? undefined;
  const list = useList<Price>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/prices", { params: { query: { limit: 50, cursor: cursor || undefined, sku_id: of("sku_id"), currency: of("currency") } } })),
    idOf: (p) => p.id ?? "", kinds: ["price"],
  });
  return (
    <>
      <Heading title={text.prices}>
        {hasRole("admin") && (
          <div class="buttons">
            <button type="button" onClick={askResume}>{billing.resume}</button>
            <To path="/prices/new" class="button primary">{billing.createPrice}</To>
          </div>
        )}
      </Heading>
      <p class="quiet">{billing.priceIntro}</p>
      <FilterForm fields={[{ name: "sku_id", label: text.nodes.sku, options: choicesOf(skus) }, { name: "currency", label: billing.currency }]} />
      <ListTable list={list} caption={text.prices} columns={columns(skus)} empty={billing.noPrices} />
    </>
  );
}

function askResume(): void {
  askAction({
    title: billing.resume, button: billing.resume, body: billing.resumeHelp, reason: "required", reasonMax: 500, danger: true,
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/admin/billing/resume", { body: { reason } }));
      return text.action.sent;
    },
  });
}

/** NewPrice plans a price, shows what it would change, and sets what was planned. */
export function NewPrice() {
  const skus = useSkus();
  const [asked, setAsked] = useState<Asked>({ sku_id: "", currency: "USD", rate_minor_per_hour: 0 });
  const [rate, setRate] = useState("");
  const [planned, setPlanned] = useState<{ plan: Plan; asked: Asked }>();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);

  async function makePlan(): Promise<void> {
    const body = { ...asked, rate_minor_per_hour: Number(rate) };
    const now = ++turn.current;
    setBusy(true);
    setProblem(undefined);
    try {
      const plan = await call(() => client.POST("/api/v1/admin/prices/plan", { body }));
      if (turn.current === now) setPlanned({ plan, asked: body });
    } catch (error) {
      if (turn.current !== now) return;
      setPlanned(undefined);
      setProblem(asProblem(error));
    } finally {
      if (turn.current === now) setBusy(false);
    }
  }
  function change(next: Partial<Asked>): void {
    turn.current++; // an answer for the old form no longer counts
    setAsked({ ...asked, ...next });
    setPlanned(undefined);
    setBusy(false);
  }
  return (
    <>
      <Heading title={billing.createPrice} />
      <form class="form stack" onSubmit={(e) => { e.preventDefault(); void makePlan(); }}>
        <p>{billing.planIntro}</p>
        <SelectField label={text.nodes.sku} name="sku" value={asked.sku_id} required onChange={(e) => change({ sku_id: e.currentTarget.value })}>
          {[{ value: "", label: text.onboard.choose }, ...choicesOf(skus)].map((o) => <option key={o.value} value={o.value}>{o.label}</option>)}
        </SelectField>
        <TextField label={billing.currency} name="currency" value={asked.currency} required minLength={3} maxLength={3} pattern="[A-Z]{3}" autoComplete="off" onInput={(e) => change({ currency: e.currentTarget.value })} />
        <TextField label={billing.rateField} name="rate" type="number" min={0} max={1_000_000_000_000} step={1} value={rate} required help={billing.rateHelp}
          onInput={(e) => { setRate(e.currentTarget.value); change({}); }} />
        <TextField label={billing.validFrom} name="from" value={asked.valid_from ?? ""} maxLength={40} help={billing.validFromHelp} autoComplete="off" onInput={(e) => change({ valid_from: e.currentTarget.value.trim() || undefined })} />
        <div class="buttons"><button type="submit" class={planned ? undefined : "primary"} aria-disabled={busy}>{busy ? text.loading : planned ? billing.makeAgain : billing.make}</button></div>
      </form>
      <ProblemText problem={problem} />
      {planned && (
        <Section title={billing.plan}>
          <PlanOfPrice plan={planned.plan} skus={skus} />
          <div class="buttons"><button type="button" class="danger" onClick={() => askSet(planned.plan, planned.asked, skus, () => void makePlan())}>{billing.createPrice}</button></div>
        </Section>
      )}
    </>
  );
}

function PlanOfPrice({ plan, skus }: { plan: Plan; skus: Named[] }) {
  const amount = (minor: number | undefined) => money(minor, plan.exponent, plan.currency);
  return (
    <>
      {plan.needs_confirmation && <p class="warnings"><span aria-hidden="true">▲ </span>{plan.needs_confirmation}</p>}
      <Facts facts={[
        [text.nodes.sku, nameOf(skus, plan.sku_id)],
        [billing.rate, amount(plan.rate_minor_per_hour)],
        [billing.valid, <Time at={plan.valid_from} />],
        [billing.before, plan.before && <>{amount(plan.before.rate_minor_per_hour)}, {billing.valid} <Time at={plan.before.valid_from} /></>],
        [billing.factor, plan.factor && plan.factor.toLocaleString("en", { maximumFractionDigits: 3 })],
        [text.plan.hash, <code>{plan.plan_hash}</code>],
      ]} />
      <p class="quiet">{billing.affectedHelp}</p>
      <Table caption={billing.affected} captionShown rows={plan.affected ?? []} keyOf={(a) => a.allocation_id ?? ""} empty={billing.noneAffected} columns={[
        { label: billing.allocation, header: true, cell: (a) => <To path={`/allocations/${encodeURIComponent(a.allocation_id ?? "")}`}>{a.allocation_id}</To> },
        { label: text.projects.one, cell: (a) => <To path={`/projects/${encodeURIComponent(a.project_id ?? "")}`}>{a.project_id}</To> },
        { label: text.accounts.one, cell: (a) => <To path={`/billing-accounts/${encodeURIComponent(a.billing_account_id ?? "")}`}>{a.billing_account_id}</To> },
        { label: billing.started, cell: (a) => (a.start_time ? <Time at={a.start_time} /> : billing.notActive) },
        { label: billing.rate, number: true, cell: (a) => amount(a.rate_minor_per_hour) },
      ]} />
      {plan.more && <p class="quiet">{billing.more}</p>}
    </>
  );
}

/** askSet sets exactly what was planned: the server refuses when the plan says something else now. */
function askSet(plan: Plan, asked: Asked, skus: Named[], planAgain: () => void): void {
  const sku = nameOf(skus, plan.sku_id);
  const fields: FormField[] = plan.needs_confirmation ? [{ name: "confirm", label: billing.confirm, kind: "check", required: true }] : [];
  askAction({
    title: billing.setPrice(sku), button: billing.createPrice, danger: true, reason: "none", fields, confirmName: sku,
    body: <><p>{money(plan.rate_minor_per_hour, plan.exponent, plan.currency)} · {billing.valid} <Time at={plan.valid_from} /></p><p>{billing.priceIntro}</p></>,
    warnings: plan.needs_confirmation ? [plan.needs_confirmation] : undefined,
    send: async ({ values, key }) => {
      const body = { ...asked, plan_hash: plan.plan_hash, confirm: values["confirm"] === "on" };
      try {
        await call(() => client.POST("/api/v1/admin/prices", { params: { header: { "Idempotency-Key": key } }, body }));
      } catch (error) {
        if (error instanceof ProblemError && error.problem.plan_hash) planAgain();
        throw error;
      }
      navigate(hrefOf("/prices", { sku_id: plan.sku_id }));
      return billing.set;
    },
  });
}
