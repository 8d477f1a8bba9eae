import { useState } from "preact/hooks";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { askDelete } from "../parts/askDelete";
import { BalanceFacts } from "../parts/BalanceFacts";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { minorOf, money } from "../parts/money";
import { PagedTable } from "../parts/paged";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text } from "../text";
import { billing } from "../textBilling";
import { ledgerColumns } from "./ProjectBilling";
import type { PageProps } from ".";

type Account = Schemas["BillingAccount"];

const columns: Column<Account>[] = [
  { label: text.sites.name, header: true, cell: (a) => <To path={`/billing-accounts/${encodeURIComponent(a.id ?? "")}`} row>{a.name}</To> },
  { label: text.accounts.projects, cell: (a) => <To path="/projects" query={{ billing_account_id: a.id }}>{text.projects.title}</To> },
  { label: text.accounts.currency, cell: (a) => a.currency },
  { label: text.accounts.most, number: true, cell: (a) => a.max_projects },
  { label: text.jobs.created, cell: (a) => <Time at={a.created_at} /> },
];

const accountFields = (a?: Account) => [
  { name: "name", label: text.sites.name, kind: "text" as const, required: true, max: 100, value: a?.name },
  { name: "max_projects", label: text.accounts.most, kind: "number" as const, required: true, max: 10_000, value: String(a?.max_projects ?? 20) },
];

const currencyField = { name: "currency", label: text.accounts.currency, help: text.accounts.currencyHelp, kind: "text" as const, required: true, max: 3, value: "USD" };

const bodyOf = (values: Record<string, string>) => ({ name: values["name"] ?? "", max_projects: Number(values["max_projects"]) });

/** Accounts lists the billing accounts, which pay for projects. */
export function Accounts() {
  const name = place.value.query.get("name") ?? undefined;
  const list = useList<Account>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/billing-accounts", { params: { query: { limit: 50, cursor: cursor || undefined, name } } })),
    idOf: (a) => a.id ?? "", kinds: ["billing_account"],
  });
  const create = () => askAction({
    title: text.accounts.create, button: text.accounts.create, reason: "none", fields: [...accountFields(), currencyField],
    send: async ({ values, key }) => {
      const made = await call(() => client.POST("/api/v1/admin/billing-accounts", { params: { header: { "Idempotency-Key": key } }, body: { ...bodyOf(values), currency: values["currency"] ?? "" } }));
      return <To path={`/billing-accounts/${encodeURIComponent(made.id ?? "")}`}>{made.name}</To>;
    },
    done: list.reload,
  });
  return (
    <>
      <Heading title={text.accounts.title}>{hasRole("operator") && <div class="buttons"><button type="button" class="primary" onClick={create}>{text.accounts.create}</button></div>}</Heading>
      <FilterForm fields={[{ name: "name", label: text.sites.name }]} />
      <ListTable list={list} caption={text.accounts.title} columns={columns} />
    </>
  );
}

/** AccountPage shows one billing account. */
export function AccountPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/billing-accounts/{id}", { params: { path: { id } } })));
  const header = (a: Account) => ({ "If-Match": `"${a.version ?? 0}"` });
  const edit = (a: Account) => askAction({
    title: `${text.spec.edit}: ${a.name ?? ""}`, button: text.spec.save, reason: "none", fields: accountFields(a),
    send: async ({ values }) => {
      await call(() => client.PUT("/api/v1/admin/billing-accounts/{id}", { params: { path: { id }, header: header(a) }, body: bodyOf(values) }));
      return text.spec.saved;
    },
    done: () => void read.again(),
  });
  const remove = (a: Account) => askDelete({
    name: a.name ?? id, help: text.accounts.deleteHelp, back: "/billing-accounts",
    send: () => call(() => client.DELETE("/api/v1/admin/billing-accounts/{id}", { params: { path: { id }, header: header(a) } })),
  });
  return (
    <Loaded read={read} title={id}>
      {(a) => (
        <>
          <Heading title={`${text.accounts.one}: ${a.name ?? id}`}>
            <div class="buttons">
              {hasRole("operator") && <button type="button" onClick={() => edit(a)}>{text.spec.edit}</button>}
              {hasRole("admin") && <button type="button" class="danger" onClick={() => remove(a)}>{text.projects.delete}</button>}
            </div>
          </Heading>
          <Section title={text.node.facts}>
            <Facts facts={[
              [text.node.id, <code>{a.id}</code>], [text.accounts.most, a.max_projects], [text.jobs.created, <Time at={a.created_at} />],
              [text.jobs.changed, <Time at={a.updated_at} />], [text.accounts.projects, <To path="/projects" query={{ billing_account_id: id }}>{text.projects.title}</To>],
            ]} />
          </Section>
          <Groups id={id} />
          {hasRole("operator") && <Money id={id} />}
        </>
      )}
    </Loaded>
  );
}

type AccountGroup = Schemas["AccountGroup"];

/** Groups shows the groups of the identity provider that belong to a billing account, and lets an operator change them. */
function Groups({ id }: { id: string }) {
  const [turn, setTurn] = useState(0);
  const again = () => setTurn(turn + 1);
  const add = () => askAction({
    title: text.accounts.addGroup, button: text.accounts.addGroup, body: text.accounts.addGroupHelp, reason: "none", done: again,
    fields: [{ name: "group", label: text.accounts.group, kind: "text", required: true, max: 200 }],
    send: async ({ values }) => {
      await call(() => client.PUT("/api/v1/admin/billing-accounts/{id}/groups/{group}", { params: { path: { id, group: values["group"] ?? "" } } }));
      return text.spec.saved;
    },
  });
  const remove = (group: string) => askAction({
    title: `${text.accounts.removeGroup}: ${group}`, button: text.accounts.removeGroup, body: text.accounts.removeGroupHelp, reason: "none", danger: true, done: again,
    send: async () => {
      await call(() => client.DELETE("/api/v1/admin/billing-accounts/{id}/groups/{group}", { params: { path: { id, group } } }));
      return text.spec.saved;
    },
  });
  return (
    <Section title={text.accounts.groups}>
      {hasRole("operator") && <div class="buttons"><button type="button" onClick={add}>{text.accounts.addGroup}</button></div>}
      <PagedTable<AccountGroup> name={`${id} ${turn}`} caption={text.accounts.groups} watch={[]} empty={text.accounts.noGroups} keyOf={(g) => g.group ?? ""}
        read={(cursor) => call(() => client.GET("/api/v1/admin/billing-accounts/{id}/groups", { params: { path: { id }, query: { limit: 50, cursor: cursor || undefined } } }))}
        columns={[
          { label: text.accounts.group, header: true, cell: (g) => g.group }, { label: text.jobs.created, cell: (g) => <Time at={g.created_at} /> },
          { label: "", cell: (g) => hasRole("operator") && <button type="button" class="danger" onClick={() => remove(g.group ?? "")}>{text.accounts.removeGroup}</button> },
        ]} />
    </Section>
  );
}

type AccountLine = Schemas["AccountLedgerLine"];

/** Money shows the balance and the ledger of a billing account, and lets an administrator change them. */
function Money({ id }: { id: string }) {
  const path = { id };
  const [turn, setTurn] = useState(0);
  const read = useRead(`${id} ${turn}`, () => call(() => client.GET("/api/v1/admin/billing-accounts/{id}/balance", { params: { path } })));
  const b = read.data;
  const again = () => setTurn(turn + 1);
  return (
    <>
      <Section title={billing.balance}>
        <ProblemText problem={read.problem} again={again} />
        {b && <BalanceFacts balance={b} />}
        {b && hasRole("admin") && (
          <div class="buttons">
            <button type="button" onClick={() => askAdjust(id, b, again)}>{billing.adjust}</button>
            <button type="button" onClick={() => askThresholds(id, b, again)}>{billing.thresholds}</button>
          </div>
        )}
      </Section>
      <Section title={billing.ledger}>
        {b && (
          <PagedTable<AccountLine> name={`${id} ${turn}`} caption={billing.ledger} watch={[]} empty={billing.none} keyOf={(l) => String(l.number)}
            read={(cursor) => call(() => client.GET("/api/v1/admin/billing-accounts/{id}/ledger", { params: { path, query: { limit: 50, cursor: cursor || undefined } } }))}
            columns={[
              ...ledgerColumns<AccountLine>(b.exponent),
              { label: billing.after, number: true, cell: (l) => money(l.balance_after_minor, b.exponent, l.currency) },
              { label: text.projects.one, cell: (l) => l.project_id && <To path={`/projects/${encodeURIComponent(l.project_id)}`}>{l.project_id}</To> },
              { label: billing.actor, cell: (l) => l.actor ?? "" },
            ]} />
        )}
      </Section>
    </>
  );
}

type BalanceView = Schemas["Balance"];

/** askAdjust gives to a balance or takes from it. The key of the form keeps a repetition from being booked. */
function askAdjust(id: string, b: BalanceView, again: () => void): void {
  askAction({
    title: billing.adjust, button: billing.adjust, body: billing.adjustHelp, reason: "required", reasonMax: 500, danger: true, done: again,
    fields: [
      { name: "amount", label: billing.adjustAmount(b.currency ?? ""), kind: "text", required: true, max: 15, help: billing.adjustAmountHelp },
      { name: "project", label: billing.adjustProject, kind: "text", max: 200, help: billing.adjustProjectHelp },
      { name: "confirm", label: billing.adjustConfirm, kind: "check", help: billing.adjustConfirmHelp },
    ],
    send: async ({ values, reason, key }) => {
      const body = { billing_account_id: id, project_id: values["project"] || undefined, amount_minor: minorOf(values["amount"], b.exponent, billing.amount), reason, confirm: values["confirm"] === "on" };
      const booked = await call(() => client.POST("/api/v1/admin/adjustments", { params: { header: { "Idempotency-Key": key } }, body }));
      return billing.booked(money(booked.amount_minor, b.exponent, booked.currency));
    },
  });
}

/** askThresholds replaces the thresholds, unless another operator has changed them since they were read. */
function askThresholds(id: string, b: BalanceView, again: () => void): void {
  const fields: [string, string, number | undefined][] = [
    ["low", billing.low, b.thresholds?.low_minor], ["depleted", billing.depleted, b.thresholds?.depleted_minor], ["rearm", billing.rearm, b.thresholds?.rearm_minor],
  ];
  askAction({
    title: billing.thresholds, button: billing.thresholds, body: billing.thresholdsHelp, reason: "required", reasonMax: 500, done: again,
    fields: [
      ...fields.map(([name, label, now]) => ({ name, label: `${label} (${b.currency ?? ""})`, kind: "text" as const, max: 15, value: money(now, b.exponent, undefined) })),
      { name: "grace", label: billing.graceField, kind: "number" as const, required: true, max: 3600, value: String(b.grace_seconds ?? 0) },
    ],
    send: async ({ values, reason }) => {
      const [low_minor, depleted_minor, rearm_minor] = fields.map(([name, label]) => (values[name] ? minorOf(values[name], b.exponent, label) : undefined));
      const body = { low_minor, depleted_minor, rearm_minor, grace_seconds: Number(values["grace"]), reason };
      await call(() => client.PUT("/api/v1/admin/billing-accounts/{id}/thresholds", { params: { path: { id }, header: { "If-Match": `"${b.version ?? 0}"` } }, body }));
      return text.spec.saved;
    },
  });
}
