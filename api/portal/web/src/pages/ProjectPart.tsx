import type { ComponentType } from "preact";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Heading } from "../parts/Facts";
import type { FormField } from "../parts/FormField";
import { To } from "../parts/Link";
import { PagedTable } from "../parts/paged";
import { ReasonGate, reasonHeader } from "../parts/reason";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { timelineColumns } from "../parts/timeline";
import { hasRole } from "../session";
import { text, words } from "../text";
import { useState } from "preact/hooks";
import { ProjectAllocations } from "./ProjectAllocations";
import { ProjectBalance, ProjectLedger, ProjectStatement, ProjectUsage } from "./ProjectBilling";
import { ProjectPayments } from "./ProjectPayments";
import { ProjectNav } from "./projectNav";
import type { PageProps } from ".";

/** PartProps are given to each list of a project: it is read again when turn changes. */
export interface PartProps {
  id: string;
  turn: number;
  again: () => void;
}

const parts: Record<string, ComponentType<PartProps>> = {
  allocations: ProjectAllocations, members: Members, invitations: Invitations, keys: Keys, tokens: ProjectTokens, webhooks: Webhooks, notices: Notices,
  balance: ProjectBalance, payments: ProjectPayments, usage: ProjectUsage, ledger: ProjectLedger, statement: ProjectStatement, audit: ProjectAudit,
};

/** ProjectPartPage shows one list of a project, once the operator has given a reason. */
export function ProjectPartPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const part = params["part"] ?? "";
  const [turn, setTurn] = useState(0);
  const View = parts[part];
  if (!View) return <><Heading title={text.notFound.title} /><p>{text.notFound.detail}</p></>;
  return (
    <ReasonGate project={id}>
      <Heading title={`${text.projects.part[part] ?? part}: ${id}`} />
      <ProjectNav id={id} />
      <View id={id} turn={turn} again={() => setTurn(turn + 1)} />
    </ReasonGate>
  );
}

/** query is that of a page of a list. */
const query = (cursor: string) => ({ limit: 50, cursor: cursor || undefined });

/** ends are a column with the button that ends a row's access. Only operators have it. */
function ends<R>(label: string, nameOf: (row: R) => string, help: string, send: (row: R) => Promise<unknown>, again: () => void, applies: (row: R) => boolean = () => true): Column<R>[] {
  if (!hasRole("operator")) return [];
  const ask = (row: R) => askAction({
    title: `${label}: ${nameOf(row)}`, button: label, body: help, reason: "none", danger: true, done: again,
    send: async () => { await send(row); return text.action.sent; },
  });
  return [{ label: text.action.title, cell: (row) => applies(row) && <button type="button" aria-label={`${label}: ${nameOf(row)}`} onClick={() => ask(row)}>{label}</button> }];
}

function Members({ id, turn, again }: PartProps) {
  const header = reasonHeader(id);
  return (
    <PagedTable<Schemas["Member"]> name={`${id} ${turn}`} caption={text.projects.part["members"] ?? ""} watch={[]} empty={text.list.none} keyOf={(m) => m.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/members", { params: { path: { id }, header, query: query(cursor) } }))}
      columns={[
        { label: text.sites.name, header: true, cell: (m) => m.name || m.subject || m.id },
        { label: text.projects.subject, cell: (m) => m.subject ?? "" },
        { label: text.tokens.role, cell: (m) => m.role ?? "" },
        { label: text.jobs.created, cell: (m) => <Time at={m.created_at} /> },
        ...ends<Schemas["Member"]>(text.projects.removeMember, (m) => m.name || m.subject || "", text.projects.removeMemberHelp, (m) => call(() => client.DELETE("/api/v1/projects/{id}/members/{member_id}", {
          params: { path: { id, member_id: m.id ?? "" }, header: { ...header, "If-Match": `"${m.version ?? 0}"` } },
        })), again),
      ]} />
  );
}

const inviteFields: FormField[] = [
  { name: "email", label: text.projects.ownerEmail, kind: "text", help: text.projects.ownerEmailHelp, max: 254 },
  { name: "subject", label: text.projects.ownerSubject, kind: "text", help: text.projects.ownerSubjectHelp, max: 300 },
  { name: "role", label: text.tokens.role, kind: "select", options: ["owner", "member", "billing", "viewer"].map((r) => ({ value: r, label: r })) },
  { name: "days", label: text.projects.inviteDays, kind: "number", required: true, max: 30, value: "7" },
];

function Invitations({ id, turn, again }: PartProps) {
  const header = reasonHeader(id);
  const invite = () => askAction({
    title: text.projects.invite, button: text.projects.invite, reason: "none", body: text.reason.used, fields: inviteFields, done: again,
    send: async ({ values, key }) => {
      const body = { email: values["email"] || undefined, subject: values["subject"] || undefined, role: values["role"] ?? "", days: Number(values["days"]) };
      await call(() => client.POST("/api/v1/projects/{id}/invitations", { params: { path: { id }, header: { ...header, "Idempotency-Key": key } }, body }));
      return text.action.sent;
    },
  });
  return (
    <>
      {hasRole("operator") && <div class="buttons"><button type="button" onClick={invite}>{text.projects.invite}</button></div>}
      <PagedTable<Schemas["Invitation"]> name={`${id} ${turn}`} caption={text.projects.part["invitations"] ?? ""} watch={[]} empty={text.list.none} keyOf={(i) => i.id ?? ""}
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/invitations", { params: { path: { id }, header, query: query(cursor) } }))}
        columns={[
          { label: text.projects.who, header: true, cell: (i) => i.email || i.subject },
          { label: text.tokens.role, cell: (i) => i.role ?? "" },
          { label: text.node.state, cell: (i) => <Badge status={i.status} /> },
          { label: text.jobs.created, cell: (i) => <Time at={i.created_at} /> },
          { label: text.tokens.expires, cell: (i) => <Time at={i.expires_at} /> },
          ...ends<Schemas["Invitation"]>(text.tokens.revoke, (i) => i.email || i.subject || "", text.projects.revokeHelp, (i) => call(() => client.DELETE("/api/v1/projects/{id}/invitations/{invitation_id}", {
            params: { path: { id, invitation_id: i.id ?? "" }, header },
          })), again, (i) => i.status === "pending"),
        ]} />
    </>
  );
}

function Keys({ id, turn, again }: PartProps) {
  const header = reasonHeader(id);
  return (
    <PagedTable<Schemas["SSHKey"]> name={`${id} ${turn}`} caption={text.projects.part["keys"] ?? ""} watch={[]} empty={text.list.none} keyOf={(k) => k.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/ssh-keys", { params: { path: { id }, header, query: query(cursor) } }))}
      columns={[
        { label: text.sites.name, header: true, cell: (k) => k.name },
        { label: text.audit.kind, cell: (k) => k.type ?? "" },
        { label: text.projects.fingerprint, cell: (k) => <code>{k.fingerprint}</code> },
        { label: text.projects.member, cell: (k) => k.member_id ?? "" },
        { label: text.jobs.created, cell: (k) => <Time at={k.created_at} /> },
        ...ends<Schemas["SSHKey"]>(text.projects.delete, (k) => k.name ?? "", text.projects.deleteKeyHelp, (k) => call(() => client.DELETE("/api/v1/projects/{id}/ssh-keys/{key_id}", {
          params: { path: { id, key_id: k.id ?? "" }, header },
        })), again),
      ]} />
  );
}

function ProjectTokens({ id, turn, again }: PartProps) {
  const header = reasonHeader(id);
  return (
    <PagedTable<Schemas["ProjectToken"]> name={`${id} ${turn}`} caption={text.projects.part["tokens"] ?? ""} watch={[]} empty={text.list.none} keyOf={(t) => t.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/tokens", { params: { path: { id }, header, query: query(cursor) } }))}
      columns={[
        { label: text.sites.name, header: true, cell: (t) => t.name },
        { label: text.tokens.role, cell: (t) => t.role ?? "" },
        { label: text.projects.member, cell: (t) => t.member_id ?? "" },
        { label: text.jobs.created, cell: (t) => <Time at={t.created_at} /> },
        { label: text.tokens.expires, cell: (t) => <Time at={t.expires_at} /> },
        { label: text.tokens.lastUsed, cell: (t) => <Time at={t.last_used_at} /> },
        ...ends<Schemas["ProjectToken"]>(text.projects.delete, (t) => t.name ?? "", text.tokens.revokeHelp, (t) => call(() => client.DELETE("/api/v1/projects/{id}/tokens/{token_id}", {
          params: { path: { id, token_id: t.id ?? "" }, header },
        })), again),
      ]} />
  );
}

function Webhooks({ id, turn }: PartProps) {
  const header = reasonHeader(id);
  return (
    <PagedTable<Schemas["Webhook"]> name={`${id} ${turn}`} caption={text.projects.part["webhooks"] ?? ""} watch={[]} empty={text.list.none} keyOf={(w) => w.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/webhooks", { params: { path: { id }, header, query: query(cursor) } }))}
      columns={[
        { label: text.sites.name, header: true, cell: (w) => <To path={`/projects/${encodeURIComponent(id)}/webhooks/${encodeURIComponent(w.id ?? "")}`} row>{w.name || w.id}</To> },
        { label: text.webhooks.url, cell: (w) => w.url ?? "" },
        { label: text.node.state, cell: (w) => <Badge status={w.status} tone={w.status === "enabled" ? "ok" : "quiet"} /> },
        { label: text.webhooks.failures, number: true, cell: (w) => w.failures },
        { label: text.webhooks.success, cell: (w) => <Time at={w.last_success_at} /> },
        { label: text.webhooks.error, cell: (w) => w.last_error ?? "" },
      ]} />
  );
}

function Notices({ id, turn }: PartProps) {
  const header = reasonHeader(id);
  return (
    <PagedTable<Schemas["Notice"]> name={`${id} ${turn}`} caption={text.projects.part["notices"] ?? ""} watch={[]} empty={text.list.none} keyOf={(n) => n.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/notices", { params: { path: { id }, header, query: query(cursor) } }))}
      columns={[
        { label: text.audit.kind, header: true, cell: (n) => words(n.kind) },
        { label: text.job.message, cell: (n) => n.message ?? "" },
        { label: text.jobs.node, cell: (n) => n.node ?? "" },
        { label: text.jobs.created, cell: (n) => <Time at={n.created_at} /> },
        { label: text.projects.deliveries, cell: (n) => <ul class="lines">{(n.deliveries ?? []).map((d, i) => <li key={i}><Badge status={d.status} /> {d.channel} {d.to} {d.error}</li>)}</ul> },
      ]} />
  );
}

function ProjectAudit({ id, turn }: PartProps) {
  const header = reasonHeader(id);
  return (
    <PagedTable<Schemas["TimelineEntry"]> name={`${id} ${turn}`} caption={text.projects.part["audit"] ?? ""} watch={[]} empty={text.list.none} keyOf={(e) => e.id ?? ""} columns={timelineColumns}
      read={async (cursor) => {
        const page = await call(() => client.GET("/api/v1/projects/{id}/audit-log", { params: { path: { id }, header, query: query(cursor) } }));
        return { next_cursor: page.next_cursor, data: (page.data ?? []).map(({ actor_id, ...entry }) => ({ ...entry, actor: actor_id })) };
      }} />
  );
}
