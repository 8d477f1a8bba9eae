import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { minorOf, money } from "../parts/money";
import { useRead } from "../parts/read";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { text, words } from "../text";
import { payments } from "../textPayments";
import type { PageProps } from ".";

type Row = Schemas["AccountPayment"];
type Payment = Schemas["PaymentDetail"];
type Status = NonNullable<Schemas["PaymentSession"]["status"]>;

const statuses: Status[] = ["initiated", "checkout_completed", "credited", "failed_reconcile", "expired"];

const tones = { initiated: "quiet", checkout_completed: "busy", credited: "ok", failed_reconcile: "bad", expired: "quiet" } as const;

/** PaymentBadge shows the status of a payment. */
export function PaymentBadge({ status }: { status: string | undefined }) {
  return <Badge status={status} tone={tones[status as Status]} />;
}

/** amountOf writes an amount of a payment in its currency. */
export const amountOf = (p: Schemas["PaymentSession"], minor: number | undefined) => money(minor, p.exponent, p.currency);

const columns: Column<Row>[] = [
  { label: payments.one, header: true, cell: (p) => <To path={`/payments/${encodeURIComponent(p.id ?? "")}`} row>{p.id}</To> },
  { label: payments.status, cell: (p) => <><PaymentBadge status={p.status} /> {p.resolution && words(p.resolution)}</> },
  { label: payments.requested, number: true, cell: (p) => amountOf(p, p.requested_amount_minor) },
  { label: payments.received, number: true, cell: (p) => money(p.received_minor, p.exponent, p.received_currency || p.currency) },
  { label: text.accounts.one, cell: (p) => <To path={`/billing-accounts/${encodeURIComponent(p.billing_account_id ?? "")}`}>{p.billing_account_id}</To> },
  { label: payments.created, cell: (p) => <Time at={p.created_at} /> },
  { label: payments.failure, cell: (p) => p.failure_message || p.last_error || "" },
];

/** Payments lists the payments of all billing accounts. */
export function Payments() {
  const of = (name: string) => place.value.query.get(name) ?? undefined;
  const list = useList<Row>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/payments/sessions", { params: { query: {
      limit: 50, cursor: cursor || undefined, status: of("status") as Status | undefined, stuck: of("stuck") === "true",
      billing_account_id: of("billing_account_id"), project_id: of("project_id"),
    } } })),
    idOf: (p) => p.id ?? "", kinds: ["payment_session"],
  });
  return (
    <>
      <Heading title={text.payments} />
      <p class="quiet">{payments.intro}</p>
      <FilterForm fields={[
        { name: "stuck", label: payments.stuck, help: payments.stuckHelp, options: [{ value: "true", label: payments.stuckOnly }] },
        { name: "status", label: payments.status, options: statuses.map((s) => ({ value: s, label: words(s) })) },
        { name: "billing_account_id", label: text.accounts.one },
        { name: "project_id", label: text.projects.one },
      ]} />
      <ListTable list={list} caption={text.payments} columns={columns} empty={payments.none} />
    </>
  );
}

/** PaymentPage shows one payment with what went back of it, and lets an operator decide. */
export function PaymentPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/payments/sessions/{payment_id}", { params: { path: { payment_id: id } } })));
  const again = () => void read.again();
  return (
    <Loaded read={read} title={id}>
      {(p) => {
        // A refund that failed left its money in suspense: it is decided about again. What a dispute has taken is not there.
        const taken = (p.disputes ?? []).reduce((sum, d) => sum + (d.state === "won" ? 0 : d.amount_minor ?? 0), 0);
        const isUndecided = !p.resolution || (p.resolution === "refund" && (p.refunded_minor ?? 0) + taken < (p.received_minor ?? 0));
        const canResolve = isUndecided && p.status === "failed_reconcile";
        const canReconcile = !p.resolution && p.status !== "credited" && p.stripe_checkout_session_id;
        const left = (p.credited_amount_minor ?? 0) - (p.refunded_minor ?? 0);
        return (
          <>
            <Heading title={`${payments.one}: ${p.id ?? id}`}>
              <div class="buttons">
                {canReconcile && <button type="button" onClick={() => askReconcile(p, again)}>{payments.reconcile}</button>}
                {canResolve && <button type="button" class="danger" onClick={() => askResolve(p, again)}>{payments.resolve}</button>}
                {p.status === "credited" && left > 0 && <button type="button" class="danger" onClick={() => askRefund(p, left, again)}>{payments.refund}</button>}
              </div>
            </Heading>
            <PaymentFacts payment={p} />
            <Reversals payment={p} again={again} />
          </>
        );
      }}
    </Loaded>
  );
}

function PaymentFacts({ payment: p }: { payment: Payment }) {
  return (
    <Section title={text.node.facts}>
      <Facts facts={[
        [payments.status, <PaymentBadge status={p.status} />], [payments.paid, words(p.payment_status)], [payments.requested, amountOf(p, p.requested_amount_minor)],
        [payments.received, money(p.received_minor, p.exponent, p.received_currency || p.currency)], [payments.credited, amountOf(p, p.credited_amount_minor)],
        [payments.refunded, p.refunded_minor ? amountOf(p, p.refunded_minor) : ""],
        [payments.failure, p.failure_message], [payments.error, p.last_error], [payments.attempts, p.credit_attempts || ""],
        [payments.resolution, p.resolution && `${words(p.resolution)}: ${p.resolution_reason ?? ""}`], [payments.resolvedBy, p.resolved_by],
        [text.accounts.one, <To path={`/billing-accounts/${encodeURIComponent(p.billing_account_id ?? "")}`}>{p.billing_account_id}</To>],
        [text.projects.one, <To path={`/projects/${encodeURIComponent(p.project_id ?? "")}`}>{p.project_id}</To>],
        [payments.by, p.requested_by], [payments.created, <Time at={p.created_at} />], [payments.expires, <Time at={p.expires_at} />],
        [payments.completed, p.completed_at && <Time at={p.completed_at} />], [payments.creditedAt, p.credited_at && <Time at={p.credited_at} />],
        [payments.entry, p.ledger_entry_id], [payments.suspense, p.suspense_entry_id],
        [payments.stripe, p.stripe_checkout_session_id && <code>{p.stripe_checkout_session_id}</code>],
        [payments.intent, p.stripe_payment_intent_id && <code>{p.stripe_payment_intent_id}</code>], [payments.mode, p.live ? payments.live : payments.test],
      ]} />
    </Section>
  );
}

/** Reversals shows what went back of a payment, or is on its way back. */
function Reversals({ payment: p, again }: { payment: Payment; again: () => void }) {
  const disputes: Column<Schemas["PaymentDispute"]>[] = [
    { label: text.node.id, header: true, cell: (d) => d.id },
    { label: payments.status, cell: (d) => <Badge status={d.state} tone={d.state === "won" ? "ok" : d.cleared_at ? "quiet" : "bad"} /> },
    { label: payments.amountLabel, number: true, cell: (d) => amountOf(p, d.amount_minor) },
    { label: payments.opened, cell: (d) => <Time at={d.opened_at} /> },
    { label: payments.closed, cell: (d) => d.closed_at && <Time at={d.closed_at} /> },
    { label: payments.cleared, cell: (d) => d.cleared_at ? <><Time at={d.cleared_at} /> {d.cleared_by}: {d.cleared_reason}</>
      : d.state !== "won" && <button type="button" aria-label={`${payments.clear}: ${d.id ?? ""}`} onClick={() => askClear(d.id ?? "", again)}>{payments.clear}</button> },
  ];
  return (
    <>
      <Section title={payments.refunds}>
        <Table caption={payments.refunds} rows={p.refunds ?? []} keyOf={(r) => r.id ?? ""} empty={payments.noRefunds} columns={[
          { label: text.node.id, header: true, cell: (r) => r.id },
          { label: payments.status, cell: (r) => <Badge status={r.state} /> },
          { label: payments.amountLabel, number: true, cell: (r) => amountOf(p, r.amount_minor) },
          { label: payments.origin, cell: (r) => (r.origin === "dashboard" ? "Stripe" : r.requested_by) },
          { label: payments.reason, cell: (r) => r.reason ?? "" },
          { label: payments.error, cell: (r) => r.last_error ?? "" },
          { label: payments.created, cell: (r) => <Time at={r.created_at} /> },
        ]} />
      </Section>
      <Section title={payments.disputes}>
        <Table caption={payments.disputes} rows={p.disputes ?? []} keyOf={(d) => d.id ?? ""} empty={payments.noDisputes} columns={disputes} />
      </Section>
    </>
  );
}

/** askReconcile starts the job that compares a payment with Stripe. */
function askReconcile(p: Payment, again: () => void): void {
  askAction({
    title: `${payments.reconcile}: ${p.id ?? ""}`, button: payments.reconcile, body: payments.reconcileHelp, reason: "optional", reasonMax: 500, done: again,
    send: async ({ reason }) => {
      const job = await call(() => client.POST("/api/v1/admin/payments/sessions/{payment_id}/reconcile", { params: { path: { payment_id: p.id ?? "" } }, body: { reason: reason || undefined } }));
      return payments.reconciled(job.job_id ?? "", words(job.status));
    },
  });
}

/** askResolve asks what becomes of a payment that could not be credited. */
function askResolve(p: Payment, again: () => void): void {
  const choices = ["credit", "refund", "write_off"] as const;
  askAction({
    title: `${payments.resolve}: ${p.id ?? ""}`, button: payments.resolve, body: payments.resolveHelp, reason: "required", reasonMax: 500, danger: true, done: again,
    fields: [{ name: "resolution", label: payments.resolution, kind: "select", required: true, options: choices.map((c) => ({ value: c, label: payments.resolutions[c] })) }],
    send: async ({ values, reason }) => {
      const resolution = values["resolution"] as Schemas["ResolveRequest"]["resolution"];
      await call(() => client.POST("/api/v1/admin/payments/sessions/{payment_id}/resolve", { params: { path: { payment_id: p.id ?? "" } }, body: { resolution, reason } }));
      return payments.resolved;
    },
  });
}

/** askRefund asks how much of a credited payment goes back. The key of the form keeps a repetition from another refund. */
function askRefund(p: Payment, left: number, again: () => void): void {
  askAction({
    title: `${payments.refund}: ${p.id ?? ""}`, button: payments.refund, body: payments.refundHelp, reason: "required", reasonMax: 500, danger: true, done: again,
    fields: [{ name: "amount", label: payments.amount(p.currency ?? ""), kind: "text", required: true, max: 15, value: money(left, p.exponent, undefined) }],
    send: async ({ values, reason, key }) => {
      const body = { amount_minor: minorOf(values["amount"], p.exponent, payments.amountLabel), reason };
      const made = await call(() => client.POST("/api/v1/admin/payments/sessions/{payment_id}/refunds", { params: { path: { payment_id: p.id ?? "" }, header: { "Idempotency-Key": key } }, body }));
      return payments.refundAsked(words(made.state));
    },
  });
}

function askClear(id: string, again: () => void): void {
  askAction({
    title: `${payments.clear}: ${id}`, button: payments.clear, body: payments.clearHelp, reason: "required", reasonMax: 500, danger: true, done: again,
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/admin/payments/disputes/{dispute_id}/clear", { params: { path: { dispute_id: id } }, body: { reason } }));
      return text.action.sent;
    },
  });
}
