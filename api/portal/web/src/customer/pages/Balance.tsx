import { Alert, Button, Progress, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { asProblem } from "../../api/problem";
import { minorOf } from "../../parts/money";
import { safeHref } from "../../safeHref";
import { isRefused, later, moneyIsHidden, soon, useBalance } from "../api";
import { Heading, Section } from "../parts/Facts";
import { Loaded } from "../parts/Loaded";
import { amountText } from "../parts/Money";
import { Paged } from "../parts/Paged";
import { Ask, SendForm } from "../parts/SendForm";
import { Status, words } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";
import { projectHref, usePlace } from "../route";
import { Funds } from "./Overview";

type Payment = Schemas["PaymentSession"];

const isOpen = (p: Payment) => p.status === "initiated" || p.status === "checkout_completed";

/** Balance shows what is left, tops it up, and sets the budget of the project. */
export function Balance({ project }: PageProps) {
  const balance = useBalance(project);
  if (isRefused(balance)) return <><Heading>Balance and top-up</Heading><Text>{moneyIsHidden}</Text></>;
  return (
    <>
      <Heading>Balance and top-up</Heading>
      <Landing project={project} />
      <Section title="Balance"><Funds project={project} /></Section>
      <Section title="Top up"><Loaded query={balance}>{(b) => <TopUp project={project} balance={b} />}</Loaded></Section>
      <Section title="Budget of the project"><Loaded query={balance}>{(b) => <BudgetOf project={project} balance={b} />}</Loaded></Section>
      <Section title="Payments">
        <Paged<Payment> name={["payments", project]} caption="Payments that were asked for in this project" every={later} keyOf={(p) => p.id ?? ""} empty="Nobody has asked for a payment."
          read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/payments/sessions", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
          columns={[
            { label: "Asked for", header: true, cell: (p) => <Time at={p.created_at} /> },
            { label: "Amount", right: true, cell: (p) => amountText(p.requested_amount_minor, p) },
            { label: "Credited", right: true, cell: (p) => p.credited_amount_minor ? amountText(p.credited_amount_minor, p) : "" },
            { label: "State", cell: (p) => <Status of={p.status} /> },
            { label: "Refunded", right: true, cell: (p) => p.refunded_minor ? amountText(p.refunded_minor, p) : "" },
            { label: "Payment page", cell: (p) => p.status === "initiated" && p.url && <a href={safeHref(p.url)}>Pay</a> },
          ]} />
      </Section>
    </>
  );
}

/** TopUp asks for a payment page, and leads there. The payment page leads back to this page. */
function TopUp({ project, balance }: { project: string; balance: Schemas["Balance"] }) {
  const [made, setMade] = useState<Payment>();
  const href = safeHref(made?.url);
  if (made && href) {
    return (
      <Alert title={`${amountText(made.requested_amount_minor, made)} to pay`}>
        <Text>The payment page is Stripe's. It brings you back here, and the balance gains the amount when Stripe has it.</Text>
        <div className="buttons"><Button component="a" href={safeHref(made.url)}>Go to the payment page</Button><Button variant="default" onClick={() => setMade(undefined)}>Another amount</Button></div>
      </Alert>
    );
  }
  const send = async (given: Record<string, string>, key: string) => {
    const back = window.location.origin + projectHref(project, "/balance");
    const body = { amount_minor: minorOf(given["amount"], balance.exponent, "Amount"), success_url: `${back}?page={CHECKOUT_SESSION_ID}`, cancel_url: back };
    setMade(await call(() => client.POST("/api/v1/projects/{id}/payments/checkout-session", { params: { path: { id: project }, header: { "Idempotency-Key": key } }, body })));
    return "";
  };
  return (
    <SendForm button="Top up" send={send}>
      <TextInput name="amount" label={`Amount in ${balance.currency ?? ""}`} required withAsterisk={false} maxLength={15} inputMode="decimal" className="narrow" description="Such as 50.00. You see it again before you pay." />
    </SendForm>
  );
}

/** Landing waits for the payment whose page the browser has come from, and tells when it is credited. */
function Landing({ project }: { project: string }) {
  const page = usePlace().query.get("page") ?? "";
  const balance = useBalance(project);
  const landed = useQuery({
    queryKey: ["payments", project, "landed", page], enabled: page !== "", refetchInterval: (q) => (q.state.data && !isOpen(q.state.data) ? false : soon),
    queryFn: async () => {
      const list = await call(() => client.GET("/api/v1/projects/{id}/payments/sessions", { params: { path: { id: project }, query: { limit: 50 } } }));
      const found = list.data?.find((p) => p.stripe_checkout_session_id === page);
      if (!found || !isOpen(found)) return found ?? null;
      // Reading one payment compares it with what Stripe says.
      const now = await call(() => client.GET("/api/v1/projects/{id}/payments/sessions/{payment_id}", { params: { path: { id: project, payment_id: found.id ?? "" } } }));
      if (now.status === "credited") await balance.refetch();
      return now;
    },
  });
  if (page === "") return null;
  if (landed.isError) return <Alert color="orange" title="The payment could not be read">{asProblem(landed.error).detail}</Alert>;
  const p = landed.data;
  if (p === undefined || (p && isOpen(p))) return <Alert title="Waiting for the payment"><div role="status">You come from the payment page. The balance gains the amount as soon as Stripe has it, which takes some seconds.</div></Alert>;
  if (p === null) return null;
  if (p.status === "credited") return <Alert color="green" title="Paid"><div role="status">{amountText(p.credited_amount_minor, p)} are credited to the balance.</div></Alert>;
  return <Alert color="orange" title="Not credited"><div role="status">The payment is {words(p.status)}. {p.failure_message}</div></Alert>;
}

const usualWarning = 80; // percent of the limit

/** BudgetOf shows and sets what the project may cost in a month. */
function BudgetOf({ project, balance }: { project: string; balance: Schemas["Balance"] }) {
  const budget = useQuery({
    queryKey: ["budget", project],
    queryFn: async () => {
      try {
        return await call(() => client.GET("/api/v1/projects/{id}/budget", { params: { path: { id: project } } }));
      } catch (error) {
        if (asProblem(error).status === 404) return null; // none is set
        throw error;
      }
    },
  });
  const put = async (given: Record<string, string>) => {
    const body = { limit_minor: minorOf(given["limit"], balance.exponent, "Limit"), warn_percent: Number(given["warn"]) };
    await call(() => client.PUT("/api/v1/projects/{id}/budget", { params: { path: { id: project } }, body }));
    return "The budget is set.";
  };
  return (
    <Loaded query={budget}>
      {(b) => (
        <>
          {b ? (
            <>
              <Text>{amountText(b.spent_minor, balance)} of {amountText(b.limit_minor, balance)} are spent in {b.month}.</Text>
              <Progress value={Math.min(100, ((b.spent_minor ?? 0) / Math.max(1, b.limit_minor ?? 1)) * 100)} aria-label="Part of the budget that is spent" className="form" />
            </>
          ) : <Text c="dimmed">The project has no budget. A budget tells you when the project costs more in a month than you expect; it releases nothing.</Text>}
          <div className="buttons">
            <Ask title="Budget of the project" button="Set the budget" send={put}>
              <TextInput name="limit" label={`Limit for a month in ${balance.currency ?? ""}`} required withAsterisk={false} maxLength={15} inputMode="decimal" data-autofocus />
              <TextInput name="warn" label="Tell first at (percent)" type="number" min={1} max={99} defaultValue={b?.warn_percent ?? usualWarning} required withAsterisk={false} />
            </Ask>
            {b && (
              <Ask danger title="Remove the budget" button="Remove the budget" send={async () => {
                await call(() => client.DELETE("/api/v1/projects/{id}/budget", { params: { path: { id: project } } }));
                return "The budget is removed.";
              }}><Text>Nobody is told any more when the project costs more than you expect.</Text></Ask>
            )}
          </div>
        </>
      )}
    </Loaded>
  );
}
