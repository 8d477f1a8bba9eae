import { useState } from "preact/hooks";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { Outside } from "../parts/Link";
import { FilterForm } from "../parts/list";
import { PagedTable } from "../parts/paged";
import { useRead } from "../parts/read";
import { ReasonGate, reasonHeader } from "../parts/reason";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { ProjectNav } from "./projectNav";
import type { PageProps } from ".";

type Webhook = Schemas["Webhook"];
type Delivery = Schemas["Delivery"];

const statuses = ["pending", "delivered", "dead"] as const;

/** WebhookPage shows a webhook of a project with its deliveries, once the operator has given a reason. */
export function WebhookPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  return <ReasonGate project={id}><WebhookView id={id} hook={params["hook"] ?? ""} /></ReasonGate>;
}

function WebhookView({ id, hook }: { id: string; hook: string }) {
  const [turn, setTurn] = useState(0);
  const path = { id, webhook_id: hook };
  const read = useRead(`${id} ${hook}`, () => call(() => client.GET("/api/v1/projects/{id}/webhooks/{webhook_id}", { params: { path, header: reasonHeader(id) } })));
  const again = () => { setTurn((t) => t + 1); void read.again(); };
  return (
    <Loaded read={read} title={hook}>
      {(w) => (
        <>
          <Heading title={`${text.webhooks.one}: ${w.name || hook}`}>
            <Badge status={w.status} tone={w.status === "enabled" ? "ok" : "quiet"} />
            <div class="buttons">
              <button type="button" onClick={again}>{text.list.reload}</button>
              {hasRole("operator") && <Actions path={path} hook={w} again={again} />}
            </div>
          </Heading>
          <ProjectNav id={id} />
          <Section title={text.node.facts}><WebhookFacts hook={w} /></Section>
          <Section title={text.projects.deliveries}><Deliveries id={id} hook={hook} turn={turn} again={again} /></Section>
        </>
      )}
    </Loaded>
  );
}

function WebhookFacts({ hook: w }: { hook: Webhook }) {
  return (
    <Facts facts={[
      [text.node.id, <code>{w.id}</code>],
      [text.webhooks.url, <Outside href={w.url}>{w.url}</Outside>],
      [text.webhooks.types, w.event_types && w.event_types.length > 0 ? w.event_types.join(", ") : text.webhooks.everyType],
      [text.webhooks.disabled, words(w.disabled_reason)],
      [text.webhooks.failures, w.failures],
      [text.webhooks.success, w.last_success_at && <Time at={w.last_success_at} />],
      [text.webhooks.failure, w.last_failure_at && <Time at={w.last_failure_at} />],
      [text.webhooks.error, w.last_error],
      [text.webhooks.oldSecret, w.previous_secret_until && <Time at={w.previous_secret_until} />],
      [text.jobs.created, <Time at={w.created_at} />],
    ]} />
  );
}

function Actions({ path, hook, again }: { path: { id: string; webhook_id: string }; hook: Webhook; again: () => void }) {
  const ask = (button: string, body: string, send: (key: string) => Promise<unknown>) => askAction({
    title: `${button}: ${hook.name ?? ""}`, button, body: <><p>{body}</p><p>{text.reason.used}</p></>, reason: "none", done: again,
    send: async ({ key }) => { await send(key); return text.action.sent; },
  });
  const header = reasonHeader(path.id);
  const test = () => ask(text.webhooks.test, text.webhooks.testHelp, (key) => call(() => client.POST("/api/v1/projects/{id}/webhooks/{webhook_id}/test", { params: { path, header: { ...header, "Idempotency-Key": key } } })));
  const enabled = hook.status === "enabled";
  const toggle = () => ask(enabled ? text.webhooks.disable : text.webhooks.enable, enabled ? text.webhooks.disableHelp : text.webhooks.enableHelp, () => call(() => client.PATCH("/api/v1/projects/{id}/webhooks/{webhook_id}", {
    params: { path, header: { ...header, "If-Match": `"${hook.version ?? 0}"` } }, body: { enabled: !enabled },
  })));
  const replay = () => askAction({
    title: `${text.webhooks.replay}: ${hook.name ?? ""}`, button: text.webhooks.replay, reason: "none", done: again,
    body: <><p>{text.webhooks.replayHelp}</p><p>{text.reason.used}</p></>,
    fields: [{ name: "after", label: text.webhooks.after, kind: "number", required: true, max: Number.MAX_SAFE_INTEGER }],
    send: async ({ values, key }) => {
      const answer = await call(() => client.POST("/api/v1/projects/{id}/webhooks/{webhook_id}/replay", { params: { path, header: { ...header, "Idempotency-Key": key } }, body: { after_cursor: Number(values["after"]) } }));
      return text.webhooks.replayed(answer.queued ?? 0, answer.next_cursor);
    },
  });
  return (
    <>
      <button type="button" onClick={test}>{text.webhooks.test}</button>
      <button type="button" onClick={replay}>{text.webhooks.replay}</button>
      <button type="button" onClick={toggle}>{enabled ? text.webhooks.disable : text.webhooks.enable}</button>
    </>
  );
}

/** Deliveries lists what was sent and what could not be: dead ones are tried no more. */
function Deliveries({ id, hook, turn, again }: { id: string; hook: string; turn: number; again: () => void }) {
  const header = reasonHeader(id);
  const status = statuses.find((s) => s === place.value.query.get("status"));
  const redeliver = (d: Delivery) => askAction({
    title: `${text.webhooks.redeliver}: ${d.type ?? ""}`, button: text.webhooks.redeliver, body: <><p>{text.webhooks.redeliverHelp}</p><p>{text.reason.used}</p></>, reason: "none", done: again,
    send: async ({ key }) => {
      const path = { id, webhook_id: hook, event_id: d.event_id ?? "" };
      await call(() => client.POST("/api/v1/projects/{id}/webhooks/{webhook_id}/deliveries/{event_id}/redeliver", { params: { path, header: { ...header, "Idempotency-Key": key } } }));
      return text.action.sent;
    },
  });
  const columns: Column<Delivery>[] = [
    { label: text.webhooks.type, header: true, cell: (d) => d.type ?? "" },
    { label: text.node.state, cell: (d) => <Badge status={d.status} /> },
    { label: text.webhooks.subject, cell: (d) => d.subject ?? "" },
    { label: text.node.when, cell: (d) => <Time at={d.occurred_at} /> },
    { label: text.job.attempts, number: true, cell: (d) => d.attempts },
    { label: text.webhooks.answer, cell: (d) => <>{d.answer || ""} {d.error}</> },
    { label: text.webhooks.nextTry, cell: (d) => d.next_at && d.status === "pending" && <Time at={d.next_at} /> },
    { label: text.webhooks.cursor, number: true, cell: (d) => d.cursor },
  ];
  if (hasRole("operator")) columns.push({ label: text.action.title, cell: (d) => d.status !== "pending" && <button type="button" aria-label={`${text.webhooks.redeliver}: ${d.event_id ?? ""}`} onClick={() => redeliver(d)}>{text.webhooks.redeliver}</button> });
  return (
    <>
      <FilterForm fields={[{ name: "status", label: text.node.state, options: statuses.map((s) => ({ value: s, label: s === "dead" ? text.webhooks.dead : s })) }]} />
      <PagedTable<Delivery> name={`${hook} ${status ?? ""} ${turn}`} caption={text.projects.deliveries} watch={[]} empty={status ? text.list.empty : text.list.none} keyOf={(d) => d.event_id ?? ""} columns={columns}
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/webhooks/{webhook_id}/deliveries", { params: { path: { id, webhook_id: hook }, header, query: { limit: 50, cursor: cursor || undefined, status } } }))} />
    </>
  );
}
