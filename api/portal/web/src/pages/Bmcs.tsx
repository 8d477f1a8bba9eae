import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { JobLink, NodeLink, To } from "../parts/Link";
import { ListTable, useList } from "../parts/list";
import { PagedTable } from "../parts/paged";
import { useRead } from "../parts/read";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { hasRole } from "../session";
import { text, words } from "../text";
import type { PageProps } from ".";

type Bmc = Schemas["BMC"];

const columns: Column<Bmc>[] = [
  { label: text.bmcs.address, header: true, cell: (b) => <To path={`/bmcs/${encodeURIComponent(b.id ?? "")}`} row>{b.address || b.id}</To> },
  { label: text.jobs.node, cell: (b) => <NodeLink id={b.node_id} /> },
  { label: text.bmcs.protocol, cell: (b) => b.protocol ?? "" },
  { label: text.bmcs.vendor, cell: (b) => b.vendor ?? "" },
  { label: text.bmcs.trouble, cell: (b) => <Trouble bmc={b} /> },
  { label: text.bmcs.rotated, cell: (b) => <Time at={b.rotated_at} /> },
];

/** Trouble shows what keeps Slipway from using a BMC. */
function Trouble({ bmc }: { bmc: Bmc }) {
  return (
    <>
      {bmc.auth_blocked_at && <Badge status={text.bmcs.blocked} tone="bad" />}{" "}
      {bmc.pin_pending && <Badge status={text.bmcs.pinWaits} tone="warn" />}{" "}
      {bmc.rotation_state && <Badge status={`${text.bmcs.rotation}: ${bmc.rotation_state}`} tone="busy" />}
    </>
  );
}

/** Bmcs lists the BMCs that Slipway knows. */
export function Bmcs() {
  const list = useList<Bmc>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/bmcs", { params: { query: { limit: 50, cursor: cursor || undefined } } })),
    idOf: (b) => b.id ?? "", kinds: ["bmc"],
  });
  return <><Heading title={text.bmcs.title} /><ListTable list={list} caption={text.bmcs.title} columns={columns} /></>;
}

/** BmcPage shows one BMC, its rotations, and what an administrator may do with it. */
export function BmcPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/bmcs/{id}", { params: { path: { id } } })));
  useLive([id, read.data?.node_id ?? id], read.again);
  return (
    <Loaded read={read} title={id}>
      {(bmc) => (
        <>
          <Heading title={`${text.node.bmc}: ${bmc.address || id}`}>
            <Trouble bmc={bmc} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
          </Heading>
          {bmc.auth_blocked_at && <p class="warnings"><span aria-hidden="true">▲ </span>{text.bmcs.blockedSince} <Time at={bmc.auth_blocked_at} />: {bmc.auth_blocked_reason}</p>}
          {hasRole("admin") && <Actions bmc={bmc} again={() => void read.again()} />}
          <Section title={text.node.facts}><BmcFacts bmc={bmc} /></Section>
          <Section title={text.bmcs.rotations}><Rotations id={id} /></Section>
        </>
      )}
    </Loaded>
  );
}

function BmcFacts({ bmc }: { bmc: Bmc }) {
  return (
    <Facts facts={[
      [text.node.id, <code>{bmc.id}</code>],
      [text.jobs.node, bmc.node_id && <NodeLink id={bmc.node_id} />],
      [text.bmcs.protocol, bmc.protocol],
      [text.bmcs.vendor, bmc.vendor],
      [text.onboard.systemId, bmc.system_id],
      [text.bmcs.cipher, bmc.ipmi_cipher_suite],
      [text.bmcs.credential, bmc.credential_ref && <code>{bmc.credential_ref}</code>],
      [text.bmcs.candidate, bmc.candidate_ref && <code>{bmc.candidate_ref}</code>],
      [text.bmcs.previous, bmc.previous_ref && <code>{bmc.previous_ref}</code>],
      [text.bmcs.pin, bmc.pin_sha256 && <code>{bmc.pin_sha256}</code>],
      [text.bmcs.pinWaits, bmc.pin_pending && <code>{bmc.pin_pending}</code>],
      [text.bmcs.rotated, bmc.rotated_at && <Time at={bmc.rotated_at} />],
      [text.jobs.changed, <Time at={bmc.updated_at} />],
    ]} />
  );
}

function Actions({ bmc, again }: { bmc: Bmc; again: () => void }) {
  const id = bmc.id ?? "";
  const path = { id };
  const title = (action: string) => `${action}: ${bmc.address ?? id}`;
  const approve = () => askAction({
    title: title(text.bmcs.approve), button: text.bmcs.approve, reason: "none", danger: true,
    body: <><p>{text.bmcs.approveHelp}</p><p><code>{bmc.pin_pending}</code></p></>,
    send: async () => {
      await call(() => client.POST("/api/v1/admin/bmcs/{id}/actions/approve-pin", { params: { path }, body: { pin_sha256: bmc.pin_pending ?? "" } }));
      return text.action.sent;
    },
    done: again,
  });
  const clear = () => askAction({
    title: title(text.bmcs.clear), button: text.bmcs.clear, body: text.bmcs.clearHelp, reason: "optional",
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/admin/bmcs/{id}/actions/clear-auth-block", { params: { path }, body: { reason: reason || undefined } }));
      return text.action.sent;
    },
    done: again,
  });
  const replace = () => askAction({
    title: title(text.bmcs.set), button: text.bmcs.set, body: text.bmcs.setHelp, reason: "optional",
    fields: [{ name: "ref", label: text.onboard.credential, kind: "text", help: text.onboard.credentialHelp, required: true, max: 210 }],
    send: async ({ reason, values }) => {
      const body = { credential_ref: values["ref"] ?? "", reason: reason || undefined };
      const answer = await call(() => client.PUT("/api/v1/admin/bmcs/{id}/credential", { params: { path, header: { "If-Match": `"${bmc.version ?? 0}"` } }, body }));
      return answer.next_step || text.action.sent;
    },
    done: again,
  });
  const rotate = () => askAction({
    title: title(text.bmcs.rotate), button: text.bmcs.rotate, body: text.bmcs.rotateHelp, reason: "optional",
    send: async ({ reason, key }) => {
      const job = await call(() => client.POST("/api/v1/admin/bmcs/{id}/rotations", { params: { path, header: { "Idempotency-Key": key } }, body: { reason: reason || undefined } }));
      return <JobLink id={job.id} name={text.action.started} />;
    },
    done: again,
  });
  return (
    <div class="buttons" role="group" aria-label={text.action.title}>
      {bmc.pin_pending && <button type="button" onClick={approve}>{text.bmcs.approve}</button>}
      {bmc.auth_blocked_at && <button type="button" onClick={clear}>{text.bmcs.clear}</button>}
      <button type="button" onClick={rotate}>{text.bmcs.rotate}</button>
      <button type="button" onClick={replace}>{text.bmcs.set}</button>
    </div>
  );
}

function Rotations({ id }: { id: string }) {
  return (
    <PagedTable<Schemas["Rotation"]> name={id} caption={text.bmcs.rotations} watch={[id]} empty={text.bmcs.rotationsNone} keyOf={(r) => r.job_id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/admin/bmcs/{id}/rotations", { params: { path: { id }, query: { limit: 50, cursor: cursor || undefined } } }))}
      columns={[
        { label: text.jobs.job, header: true, cell: (r) => <JobLink id={r.job_id} name={words(r.status) || text.jobs.job} row /> },
        { label: text.job.outcome, cell: (r) => <Badge status={r.outcome} /> },
        { label: text.node.when, cell: (r) => <Time at={r.requested_at} /> },
        { label: text.node.who, cell: (r) => r.requested_by ?? "" },
        { label: text.action.reason, cell: (r) => r.reason ?? "" },
        { label: text.job.message, cell: (r) => <>{r.failure_class && <Badge status={r.failure_class} tone="bad" />} {r.message}</> },
        { label: text.bmcs.credential, cell: (r) => <code>{r.new_credential_ref}</code> },
      ]} />
  );
}
