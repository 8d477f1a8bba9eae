import { useEffect, useState } from "preact/hooks";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { asProblem } from "../api/problem";
import type { Problem } from "../api/problem";
import { askAction } from "../parts/ActionForm";
import { Section } from "../parts/Facts";
import { Outside } from "../parts/Link";
import { minorOf } from "../parts/money";
import { tell } from "../parts/notice";
import { PagedTable } from "../parts/paged";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import { reasonHeader } from "../parts/reason";
import { Time } from "../parts/Time";
import { hrefOf, place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { payments } from "../textPayments";
import { amountOf, PaymentBadge } from "./Payments";
import type { PartProps } from "./ProjectPart";

type Payment = Schemas["PaymentSession"];

const path = "/api/v1/projects/{id}/payments/sessions";

const isOpen = (p: Payment) => p.status === "initiated" || p.status === "checkout_completed";

/** How often a payment is read for who has come from the payment page, and for how many times. */
const landingPause = 3000;
const landingTries = 40;

/** ProjectPayments lists the payments that were asked for in a project, and asks for another one. */
export function ProjectPayments({ id, turn, again }: PartProps) {
  const header = reasonHeader(id);
  const balance = useRead(`${id} ${turn}`, () => call(() => client.GET("/api/v1/projects/{id}/balance", { params: { path: { id }, header } })));
  const funds = balance.data;
  const [problem, setProblem] = useState<Problem>();
  const check = (p: Payment) => {
    setProblem(undefined);
    call(() => client.GET("/api/v1/projects/{id}/payments/sessions/{payment_id}", { params: { path: { id, payment_id: p.id ?? "" }, header } }))
      .then((now) => { tell(payments.checked(words(now.status))); again(); }, (error: unknown) => setProblem(asProblem(error)));
  };
  return (
    <Section title={text.payments} side={hasRole("operator") && funds && <button type="button" class="primary" onClick={() => askTopUp(id, funds, again)}>{payments.topUp}</button>}>
      <p class="quiet">{payments.projectHelp}</p>
      <ProblemText problem={balance.problem ?? problem} />
      <Landing id={id} again={again} />
      <PagedTable<Payment> name={`${id} ${turn}`} caption={text.payments} watch={[]} empty={payments.none} keyOf={(p) => p.id ?? ""}
        read={(cursor) => call(() => client.GET(path, { params: { path: { id }, header, query: { limit: 50, cursor: cursor || undefined } } }))}
        columns={[
          { label: payments.one, header: true, cell: (p) => p.id },
          { label: payments.status, cell: (p) => <><PaymentBadge status={p.status} /> {p.resolution && words(p.resolution)}</> },
          { label: payments.requested, number: true, cell: (p) => amountOf(p, p.requested_amount_minor) },
          { label: payments.credited, number: true, cell: (p) => amountOf(p, p.credited_amount_minor) },
          { label: payments.refunded, number: true, cell: (p) => (p.refunded_minor ? amountOf(p, p.refunded_minor) : "") },
          { label: payments.created, cell: (p) => <Time at={p.created_at} /> },
          { label: payments.failure, cell: (p) => p.failure_message ?? "" },
          { label: payments.page, cell: (p) => p.url && <Outside href={p.url}>{payments.open}</Outside> },
          { label: text.action.title, cell: (p) => isOpen(p) && <button type="button" aria-label={`${payments.check}: ${p.id ?? ""}`} onClick={() => check(p)}>{payments.check}</button> },
        ]} />
    </Section>
  );
}

/** Landing waits for the payment whose page the browser has come from, and tells when it is credited. */
function Landing({ id, again }: { id: string; again: () => void }) {
  const page = place.value.query.get("page") ?? "";
  const [waits, setWaits] = useState(page !== "");
  useEffect(() => {
    if (!page) return;
    let left = false;
    const header = reasonHeader(id);
    const look = async (): Promise<boolean> => {
      const list = await call(() => client.GET(path, { params: { path: { id }, header, query: { limit: 50 } } }));
      const found = list.data?.find((p) => p.stripe_checkout_session_id === page);
      if (!found) return true;
      const now = isOpen(found) ? await call(() => client.GET("/api/v1/projects/{id}/payments/sessions/{payment_id}", { params: { path: { id, payment_id: found.id ?? "" }, header } })) : found;
      if (isOpen(now)) return false;
      tell(now.status === "credited" ? payments.landed(amountOf(now, now.credited_amount_minor)) : payments.checked(words(now.status)));
      return true;
    };
    void (async () => {
      for (let i = 0; i < landingTries && !left; i++) {
        if (await look().catch(() => false)) break;
        await new Promise((done) => { setTimeout(done, landingPause); });
      }
      if (left) return;
      setWaits(false);
      again();
    })();
    return () => { left = true; };
  }, [id, page]);
  return waits ? <p role="status">{payments.waiting}</p> : null;
}

/** askTopUp asks for a payment page. The key of the form keeps a repetition from a second one. */
function askTopUp(id: string, balance: Schemas["Balance"], again: () => void): void {
  askAction({
    title: payments.topUp, button: payments.topUp, body: payments.topUpHelp, reason: "none", done: again,
    fields: [{ name: "amount", label: payments.amount(balance.currency ?? ""), kind: "text", required: true, max: 15 }],
    send: async ({ values, key }) => {
      const back = window.location.origin + hrefOf(`/projects/${encodeURIComponent(id)}/payments`);
      const body = { amount_minor: minorOf(values["amount"], balance.exponent, payments.amountLabel), success_url: `${back}?page={CHECKOUT_SESSION_ID}`, cancel_url: back };
      const made = await call(() => client.POST("/api/v1/projects/{id}/payments/checkout-session", { params: { path: { id }, header: { ...reasonHeader(id), "Idempotency-Key": key } }, body }));
      return <>{amountOf(made, made.requested_amount_minor)}: <Outside href={made.url}>{payments.open}</Outside></>;
    },
  });
}
