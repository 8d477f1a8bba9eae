import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { refuse } from "../api/problem";
import { serverNow } from "../clock";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import type { FormField } from "../parts/FormField";
import { To } from "../parts/Link";
import { FilterForm } from "../parts/list";
import { PagedTable } from "../parts/paged";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import { ReasonGate, reasonHeader } from "../parts/reason";
import { useSending } from "../parts/sending";
import { Table } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";
import { LiveProgress, progressText, statusFilter, useAllocation } from "./Allocations";
import { ProjectNav } from "./projectNav";
import type { PartProps } from "./ProjectPart";
import type { PageProps } from ".";

type AllocationView = Schemas["Allocation"];

const pathOf = (project: string, id: string | undefined) => `/projects/${encodeURIComponent(project)}/allocations/${encodeURIComponent(id ?? "")}`;
const tagsText = (tags: Record<string, string> | undefined, between: string) => Object.entries(tags ?? {}).map(([k, v]) => `${k}=${v}`).join(between);

/** ProjectAllocations lists the allocations of a project. It does not follow changes: each read is a row of the project's audit log. */
export function ProjectAllocations({ id, turn, again }: PartProps) {
  const header = reasonHeader(id);
  const status = place.value.query.get("status");
  const { busy, problem, run } = useSending();
  const create = () => void run(async () => {
    const [offers, keys] = await Promise.all([
      call(() => client.GET("/api/v1/catalogue", { params: { query: { limit: 200 } } })),
      call(() => client.GET("/api/v1/projects/{id}/ssh-keys", { params: { path: { id }, header, query: { limit: 200 } } })),
    ]);
    askCreate(id, offers.data ?? [], keys.data ?? [], again);
  });
  return (
    <>
      {hasRole("operator") && <div class="buttons"><button type="button" aria-disabled={busy} onClick={create}>{text.allocations.create}</button></div>}
      <ProblemText problem={problem} />
      <FilterForm fields={[statusFilter]} />
      <PagedTable<AllocationView> name={`${id} ${turn} ${status ?? ""}`} caption={text.allocations.title} watch={[]} empty={text.list.none} keyOf={(a) => a.id ?? ""}
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/allocations", { params: { path: { id }, header, query: { limit: 50, cursor: cursor || undefined, status: status ? [status] : undefined } } }))}
        columns={[
          { label: text.sites.name, header: true, cell: (a) => <To path={pathOf(id, a.id)} row>{a.name || a.id}</To> },
          { label: text.node.state, cell: (a) => <Badge status={a.status} /> },
          { label: text.allocations.state, cell: (a) => words(a.state) },
          { label: text.nodes.sku, cell: (a) => a.sku ?? "" },
          { label: text.nodes.site, cell: (a) => a.topology?.site ?? "" },
          { label: text.projects.tags, cell: (a) => tagsText(a.tags, ", ") },
          { label: text.allocations.progress, cell: (a) => progressText(a.progress) },
          { label: text.allocations.requested, cell: (a) => <Time at={a.requested_at} /> },
        ]} />
    </>
  );
}

/** tagsOf reads one KEY=VALUE on each line. */
function tagsOf(lines: string | undefined): Record<string, string> {
  const tags: Record<string, string> = {};
  for (const line of (lines ?? "").split("\n").map((l) => l.trim()).filter((l) => l !== "")) {
    const at = line.indexOf("=");
    if (at < 1) refuse(text.allocations.badTag(line));
    tags[line.slice(0, at)] = line.slice(at + 1);
  }
  return tags;
}

function askCreate(id: string, offers: Schemas["CatalogueItem"][], keys: Schemas["SSHKey"][], again: () => void): void {
  const fields: FormField[] = [
    { name: "sku", label: text.nodes.sku, kind: "select", required: true, options: [{ value: "", label: text.onboard.choose }, ...offers.map((o) => ({ value: o.sku_id ?? "", label: `${o.title ?? ""} (${o.sku ?? ""})` }))] },
    { name: "name", label: text.sites.name, kind: "text", max: 100 },
    { name: "tags", label: text.projects.tags, kind: "area", rows: 3, max: 4000, help: text.allocations.tagsHelp },
    ...keys.map((k): FormField => ({ name: `key ${k.id ?? ""}`, label: text.allocations.key(k.name ?? ""), kind: "check", help: k.fingerprint, value: "on" })),
    { name: "wait", label: text.allocations.wait, kind: "number", max: 1440, value: "0", help: text.allocations.waitHelp },
    { name: "hours", label: text.allocations.hours, kind: "number", min: 1, max: 8760, help: text.allocations.hoursHelp },
  ];
  askAction({
    title: text.allocations.create, button: text.allocations.create, reason: "none", fields, done: again,
    body: <><p>{text.allocations.createHelp}</p><p>{text.reason.used}</p></>, warnings: keys.length === 0 ? [text.allocations.noKeys] : undefined,
    send: async ({ values, key }) => {
      const chosen = keys.map((k) => k.id ?? "").filter((k) => values[`key ${k}`] === "on");
      if (keys.length > 0 && chosen.length === 0) refuse(text.allocations.chooseKey); // the API takes none for all
      const hours = Number(values["hours"]);
      const body = {
        sku_id: values["sku"] ?? "", name: values["name"] || undefined, tags: tagsOf(values["tags"]), ssh_key_ids: chosen, wait_seconds: Number(values["wait"]) * 60,
        expires_at: hours > 0 ? new Date(serverNow() + hours * 3_600_000).toISOString() : undefined,
      };
      const made = await call(() => client.POST("/api/v1/projects/{id}/allocations", { params: { path: { id }, header: { ...reasonHeader(id), "Idempotency-Key": key } }, body }));
      return <To path={pathOf(id, made.id)}>{made.name || made.id}</To>;
    },
  });
}

/** ProjectAllocationPage shows an allocation as its project sees it, once the operator has given a reason. */
export function ProjectAllocationPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  return <ReasonGate project={id}><ProjectAllocation id={id} allocation={params["allocation"] ?? ""} /></ReasonGate>;
}

function ProjectAllocation({ id, allocation }: { id: string; allocation: string }) {
  const path = { id, allocation_id: allocation };
  const read = useRead(`${id} ${allocation}`, () => call(() => client.GET("/api/v1/projects/{id}/allocations/{allocation_id}", { params: { path, header: reasonHeader(id) } })));
  const live = useAllocation(allocation).data; // what needs no reason is followed
  const again = () => void read.again();
  return (
    <Loaded read={read} title={allocation}>
      {(a) => (
        <>
          <Heading title={`${text.allocations.one}: ${a.name || a.id || ""}`}>
            <Badge status={live?.status ?? a.status} />
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
            <div class="buttons">
              <button type="button" onClick={again}>{text.list.reload}</button>
              {hasRole("operator") && a.allowed_actions?.includes("update") && <button type="button" onClick={() => askEdit(path, a, again)}>{text.allocations.edit}</button>}
              {hasRole("operator") && a.allowed_actions?.includes("release") && <button type="button" class="danger" onClick={() => askRelease(path, a, again)}>{text.allocations.release}</button>}
            </div>
          </Heading>
          <ProjectNav id={id} />
          <p role="status">{live && live.status !== a.status ? text.allocations.changed : ""}</p>
          <div class="columns">
            <Section title={text.allocations.live}>{live && <LiveProgress allocation={live} />}</Section>
            {a.failure_message && <Section title={text.allocations.failure}><p>{a.failure_message}</p></Section>}
            {a.connection && <Section title={text.allocations.connection}><Connection allocation={a} /></Section>}
            <Section title={text.node.facts}><OwnFacts allocation={a} /></Section>
          </div>
          <Section title={text.allocations.keys}>
            <Table caption={text.allocations.keys} rows={a.ssh_keys ?? []} keyOf={(k) => k.fingerprint ?? ""} empty={text.list.none} columns={[
              { label: text.projects.fingerprint, header: true, cell: (k) => <code>{k.fingerprint}</code> },
              { label: text.allocations.accepted, cell: (k) => k.accepted_at && <Time at={k.accepted_at} /> },
              { label: text.allocations.refused, cell: (k) => k.refused_at && <Time at={k.refused_at} /> },
            ]} />
          </Section>
        </>
      )}
    </Loaded>
  );
}

function Connection({ allocation: a }: { allocation: AllocationView }) {
  const c = a.connection;
  return (
    <Facts facts={[
      [text.allocations.command, <code>{text.allocations.login(a.id ?? "")}</code>],
      [text.allocations.host, c?.host],
      [text.allocations.port, c?.port],
      [text.allocations.user, c?.user],
      [text.allocations.hostKey, <code>{c?.host_key_sha256}</code>],
    ]} />
  );
}

function OwnFacts({ allocation: a }: { allocation: AllocationView }) {
  return (
    <Facts facts={[
      [text.node.id, <code>{a.id}</code>],
      [text.nodes.sku, a.sku],
      [text.allocations.state, words(a.state)],
      [text.allocations.condition, [words(a.condition), a.condition_reason].filter(Boolean).join(": ")],
      [text.projects.tags, tagsText(a.tags, ", ")],
      [text.nodes.site, a.topology?.site],
      [text.allocations.rack, a.topology?.rack],
      [text.allocations.group, a.topology?.group],
      [text.allocations.image, a.image && [a.image.name, a.image.version].filter(Boolean).join(" ")],
      [text.allocations.installed, a.image && <Time at={a.image.installed_at} />],
      [text.allocations.network, [words(a.network?.kind), a.network?.cidr].filter(Boolean).join(" ")],
      [text.allocations.access, a.access && <Badge status={a.access} />],
      [text.allocations.outcome, words(a.outcome)],
      [text.allocations.requested, <Time at={a.requested_at} />],
      [text.allocations.waits, a.status === "requested" && a.queue_deadline_at && <Time at={a.queue_deadline_at} />],
      [text.allocations.active, a.start_time && <Time at={a.start_time} />],
      [text.allocations.expires, a.expires_at && <Time at={a.expires_at} />],
      [text.allocations.ended, a.released_at && <Time at={a.released_at} />],
      [text.allocations.certificate, a.certificate_id && <code>{a.certificate_id}</code>],
    ]} />
  );
}

interface Path {
  id: string;
  allocation_id: string;
}

function askEdit(path: Path, a: AllocationView, again: () => void): void {
  askAction({
    title: text.allocations.edit, button: text.spec.save, reason: "none", body: text.reason.used, done: again,
    fields: [
      { name: "name", label: text.sites.name, kind: "text", max: 100, value: a.name },
      { name: "tags", label: text.projects.tags, kind: "area", rows: 5, max: 12000, help: text.allocations.tagsHelp, value: tagsText(a.tags, "\n") },
    ],
    send: async ({ values }) => {
      const header = { ...reasonHeader(path.id), "If-Match": `"${a.version ?? 0}"` };
      await call(() => client.PATCH("/api/v1/projects/{id}/allocations/{allocation_id}", { params: { path, header }, body: { name: values["name"] ?? "", tags: tagsOf(values["tags"]) } }));
      return text.spec.saved;
    },
  });
}

function askRelease(path: Path, a: AllocationView, again: () => void): void {
  askAction({
    title: `${text.allocations.release}: ${a.name || a.id || ""}`, button: text.allocations.release, reason: "optional", reasonMax: 500, danger: true, confirmName: a.name || a.id,
    body: <><p>{text.allocations.releaseHelp}</p><p>{text.reason.used}</p></>, done: again,
    send: async ({ reason }) => {
      await call(() => client.POST("/api/v1/projects/{id}/allocations/{allocation_id}/release", { params: { path, header: reasonHeader(path.id) }, body: { reason: reason || undefined } }));
      return text.action.sent;
    },
  });
}
