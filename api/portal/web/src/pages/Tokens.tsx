import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { now } from "../clock";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Heading } from "../parts/Facts";
import { ListTable, useList } from "../parts/list";
import { showSecret } from "../parts/showSecret";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { text } from "../text";

type Token = Schemas["APIToken"];

/** roles that a token may have, the lowest first. */
const roles = ["viewer", "operator", "admin"];

const stateOf = (t: Token) => (t.revoked_at ? "revoked" : t.expires_at && Date.parse(t.expires_at) < now.value ? "expired" : "valid");

function columns(again: () => void): Column<Token>[] {
  return [
    { label: text.tokens.name, header: true, cell: (t) => <>{t.name} <code class="quiet">{t.id}</code></> },
    { label: text.session.roles, cell: (t) => (t.roles ?? []).join(", ") },
    { label: text.node.state, cell: (t) => <Badge status={stateOf(t)} tone={stateOf(t) === "valid" ? "ok" : "quiet"} /> },
    { label: text.jobs.created, cell: (t) => <Time at={t.created_at} /> },
    { label: text.tokens.expires, cell: (t) => <Time at={t.expires_at} /> },
    { label: text.tokens.lastUsed, cell: (t) => <Time at={t.last_used_at} /> },
    { label: text.action.title, cell: (t) => stateOf(t) === "valid" && <button type="button" aria-label={`${text.tokens.revoke}: ${t.name ?? ""}`} onClick={() => askRevoke(t, again)}>{text.tokens.revoke}</button> },
  ];
}

/** Tokens lists the API tokens, makes new ones and revokes them. */
export function Tokens() {
  const list = useList<Token>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/api-tokens", { params: { query: { limit: 50, cursor: cursor || undefined } } })),
    idOf: (t) => t.id ?? "", kinds: ["api_token"],
  });
  return (
    <>
      <Heading title={text.tokens.title}><div class="buttons"><button type="button" class="primary" onClick={() => askCreate(list.reload)}>{text.tokens.create}</button></div></Heading>
      <p class="quiet">{text.tokens.intro}</p>
      <ListTable list={list} caption={text.tokens.title} columns={columns(list.reload)} />
    </>
  );
}

function askCreate(again: () => void): void {
  askAction({
    title: text.tokens.create, button: text.tokens.create, body: text.tokens.createHelp, reason: "none",
    fields: [
      { name: "name", label: text.tokens.name, kind: "text", help: text.tokens.nameHelp, required: true, max: 100 },
      { name: "role", label: text.tokens.role, kind: "select", options: roles.map((r) => ({ value: r, label: r })) },
      { name: "ttl", label: text.tokens.ttl, kind: "text", help: text.tokens.ttlHelp, value: "720h", max: 32 },
    ],
    send: async ({ values, key }) => {
      const body = { name: values["name"] ?? "", roles: [values["role"] ?? "viewer"], ttl: values["ttl"] || undefined };
      const made = await call(() => client.POST("/api/v1/admin/api-tokens", { params: { header: { "Idempotency-Key": key } }, body }));
      showSecret(text.tokens.made(made.name ?? ""), made.token);
      return text.tokens.made(made.name ?? "");
    },
    done: again,
  });
}

function askRevoke(token: Token, again: () => void): void {
  askAction({
    title: `${text.tokens.revoke}: ${token.name ?? ""}`, button: text.tokens.revoke, body: text.tokens.revokeHelp, reason: "none", danger: true,
    send: async () => {
      await call(() => client.DELETE("/api/v1/admin/api-tokens/{id}", { params: { path: { id: token.id ?? "" } } }));
      return text.tokens.revoked(token.name ?? "");
    },
    done: again,
  });
}
