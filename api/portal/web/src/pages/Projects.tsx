import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { ProblemText } from "../parts/ProblemText";
import { choicesOf, nameOf, useAccounts } from "../parts/named";
import type { Named } from "../parts/named";
import { useRead } from "../parts/read";
import { headerOf, ReasonGate, reasonHeader } from "../parts/reason";
import { Table } from "../parts/Table";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text } from "../text";
import { ProjectNav } from "./projectNav";
import type { PageProps } from ".";

type Project = Schemas["Project"];

const columns = (accounts: Named[]): Column<Project>[] => [
  { label: text.sites.name, header: true, cell: (p) => <To path={`/projects/${encodeURIComponent(p.id ?? "")}`} row>{p.name || p.id}</To> },
  { label: text.node.state, cell: (p) => <Badge status={p.status} /> },
  { label: text.accounts.one, cell: (p) => <To path={`/billing-accounts/${encodeURIComponent(p.billing_account_id ?? "")}`}>{nameOf(accounts, p.billing_account_id)}</To> },
  { label: text.jobs.created, cell: (p) => <Time at={p.created_at} /> },
];

/** Projects lists the projects of all customers. What is in one is shown with a reason alone. */
export function Projects() {
  const account = place.value.query.get("billing_account_id") ?? undefined;
  const accounts = useAccounts();
  const list = useList<Project>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/projects", { params: { query: { limit: 50, cursor: cursor || undefined, billing_account_id: account } } })),
    idOf: (p) => p.id ?? "", kinds: ["project"],
  });
  return (
    <>
      <Heading title={text.projects.title}>{hasRole("operator") && <div class="buttons"><button type="button" class="primary" onClick={() => askCreate(accounts, account, list.reload)}>{text.projects.create}</button></div>}</Heading>
      <p class="quiet">{text.projects.intro}</p>
      <FilterForm fields={[{ name: "billing_account_id", label: text.accounts.one, options: choicesOf(accounts) }]} />
      <ListTable list={list} caption={text.projects.title} columns={columns(accounts)} />
    </>
  );
}

function askCreate(accounts: Named[], account: string | undefined, again: () => void): void {
  askAction({
    title: text.projects.create, button: text.projects.create, body: text.projects.createHelp, reason: "none",
    fields: [
      { name: "name", label: text.sites.name, kind: "text", required: true, max: 100 },
      { name: "account", label: text.accounts.one, kind: "select", help: text.projects.accountHelp, required: true, value: account, options: [{ value: "", label: text.onboard.choose }, ...choicesOf(accounts)] },
      { name: "email", label: text.projects.ownerEmail, kind: "text", help: text.projects.ownerEmailHelp, max: 254 },
      { name: "subject", label: text.projects.ownerSubject, kind: "text", help: text.projects.ownerSubjectHelp, max: 300 },
    ],
    send: async ({ values, key }) => {
      const body = { name: values["name"] ?? "", billing_account_id: values["account"] ?? "", owner_email: values["email"] || undefined, owner_subject: values["subject"] || undefined };
      const made = await call(() => client.POST("/api/v1/admin/projects", { params: { header: { "Idempotency-Key": key } }, body }));
      return <To path={`/projects/${encodeURIComponent(made.id ?? "")}`}>{made.name}</To>;
    },
    done: again,
  });
}

/** ProjectPage shows a project of a customer and its quotas, once the operator has given a reason. */
export function ProjectPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  return <ReasonGate project={id}><ProjectOverview id={id} /></ReasonGate>;
}

/** ProjectOverview does not follow changes: each read is a row of the project's audit log. */
function ProjectOverview({ id }: { id: string }) {
  const read = useRead(id, () => call(() => client.GET("/api/v1/projects/{id}", { params: { path: { id }, header: reasonHeader(id) } })));
  return (
    <Loaded read={read} title={id}>
      {(project) => (
        <>
          <Heading title={`${text.projects.one}: ${project.name ?? id}`}>
            <Badge status={project.status} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
            <div class="buttons">
              <button type="button" onClick={() => void read.again()}>{text.list.reload}</button>
              {hasRole("operator") && project.status === "active" && <button type="button" class="danger" onClick={() => askClose(project, () => void read.again())}>{text.projects.close}</button>}
            </div>
          </Heading>
          <ProjectNav id={id} />
          <Section title={text.node.facts}>
            <Facts facts={[
              [text.node.id, <code>{project.id}</code>],
              [text.accounts.one, <To path={`/billing-accounts/${encodeURIComponent(project.billing_account_id ?? "")}`}>{project.billing_account_id}</To>],
              [text.projects.tags, Object.entries(project.tags ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")],
              [text.jobs.created, <Time at={project.created_at} />],
              [text.projects.closed, project.closed_at && <Time at={project.closed_at} />],
            ]} />
          </Section>
          <Section title={text.projects.quotas}><Quotas id={id} /></Section>
        </>
      )}
    </Loaded>
  );
}

function askClose(project: Project, again: () => void): void {
  askAction({
    title: `${text.projects.close}: ${project.name ?? ""}`, button: text.projects.close, reason: "required", danger: true, confirmName: project.name ?? project.id,
    body: text.projects.closeHelp, reasonMax: 500,
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/admin/projects/{id}/close", { params: { path: { id: project.id ?? "" }, header: { "If-Match": `"${project.version ?? 0}"` } }, body: { reason } }));
      return text.action.sent;
    },
    done: again,
  });
}

function Quotas({ id }: { id: string }) {
  const read = useRead(id, () => call(() => client.GET("/api/v1/projects/{id}/quotas", { params: { path: { id }, header: reasonHeader(id) } })));
  const again = () => void read.again();
  const set = (sku: string, now: number | undefined) => askAction({
    title: text.projects.setQuota, button: text.projects.setQuota, reason: "required", reasonMax: 500, body: text.projects.quotaHelp,
    fields: [
      { name: "sku", label: text.nodes.sku, kind: "text", help: text.projects.quotaSku, required: true, value: sku },
      { name: "nodes", label: text.projects.mostNodes, kind: "number", required: true, max: 100_000, value: now === undefined ? undefined : String(now) },
    ],
    send: async ({ reason, values }) => {
      const path = { id, sku: values["sku"] ?? "" };
      await call(() => client.PUT("/api/v1/admin/projects/{id}/quotas/{sku}", { params: { path }, body: { max_nodes: Number(values["nodes"]), reason } }));
      return text.spec.saved;
    },
    done: again,
  });
  const remove = (sku: string) => askAction({
    title: `${text.projects.deleteQuota}: ${sku}`, button: text.projects.deleteQuota, reason: "required", reasonMax: 500, danger: true, body: text.projects.deleteQuotaHelp,
    send: async ({ reason }) => {
      await call(() => client.DELETE("/api/v1/admin/projects/{id}/quotas/{sku}", { params: { path: { id, sku }, header: headerOf(reason) } }));
      return text.action.sent;
    },
    done: again,
  });
  return (
    <>
      <ProblemText problem={read.problem} again={again} />
      <Table caption={text.projects.quotas} rows={read.data?.data ?? []} keyOf={(q) => q.sku ?? ""} busy={!read.data} empty={text.projects.noQuota} columns={[
        { label: text.nodes.sku, header: true, cell: (q) => q.sku || q.sku_id },
        { label: text.projects.mostNodes, number: true, cell: (q) => q.max_nodes },
        { label: text.jobs.changed, cell: (q) => <Time at={q.updated_at} /> },
        ...(hasRole("operator") ? [{ label: text.action.title, cell: (q: Schemas["Quota"]) => (
          <div class="buttons">
            <button type="button" aria-label={`${text.projects.setQuota}: ${q.sku ?? ""}`} onClick={() => set(q.sku ?? "", q.max_nodes)}>{text.projects.setQuota}</button>
            <button type="button" aria-label={`${text.projects.deleteQuota}: ${q.sku ?? ""}`} onClick={() => remove(q.sku ?? "")}>{text.projects.deleteQuota}</button>
          </div>
        ) }] : []),
      ]} />
      {hasRole("operator") && <div class="buttons"><button type="button" onClick={() => set("total", undefined)}>{text.projects.addQuota}</button></div>}
    </>
  );
}
