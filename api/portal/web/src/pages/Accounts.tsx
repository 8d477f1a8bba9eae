import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { askDelete } from "../parts/askDelete";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { useRead } from "../parts/read";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text } from "../text";
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
        </>
      )}
    </Loaded>
  );
}
