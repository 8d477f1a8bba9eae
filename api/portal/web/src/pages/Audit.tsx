import { useRef } from "preact/hooks";
import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { Heading } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import type { Column } from "../parts/Table";
import { timelineColumns } from "../parts/timeline";
import { place } from "../router";
import { text, words } from "../text";

type Entry = Schemas["TimelineEntry"];

const kinds = ["transition", "action", "call", "observation"] as const;

/** pageOfKind is the page that shows a resource of a kind. */
const pageOfKind: Record<string, string> = { node: "nodes", job: "jobs", bmc: "bmcs", site: "sites", sku: "skus", install_workflow: "install-workflows", drift: "drift", project: "projects" };

function Resource({ entry }: { entry: Entry }) {
  const page = pageOfKind[entry.resource_kind ?? ""];
  return (
    <>
      {words(entry.resource_kind)}{" "}
      {page && entry.resource_id ? <To path={`/${page}/${encodeURIComponent(entry.resource_id)}`}>{entry.resource_id}</To> : <code>{entry.resource_id}</code>}
    </>
  );
}

const columns: Column<Entry>[] = [...timelineColumns.slice(0, 2), { label: text.audit.resource, cell: (e) => <Resource entry={e} /> }, ...timelineColumns.slice(2)];

/** Audit searches what operators, jobs, agents and the system did. */
export function Audit() {
  const filter = place.value.query;
  const of = (name: string) => filter.get(name) ?? undefined;
  const instant = (name: string) => {
    const given = of(name);
    if (!given) return undefined;
    // A day and a local time are understood too; what cannot be read is left for the API to explain.
    const read = new Date(given);
    return Number.isNaN(read.getTime()) ? given : read.toISOString();
  };
  const rows = useRef<Entry[]>([]);
  const list = useList<Entry>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/audit", {
      params: {
        query: {
          limit: 50, cursor: cursor || undefined, kind: kinds.find((k) => k === of("kind")), name: of("name"), actor: of("actor"), node_id: of("node_id"),
          resource_kind: of("resource_kind"), resource_id: of("resource_id"), since: instant("since"), until: instant("until"),
        },
      },
    })),
    // An entry never changes; new ones show after a reload.
    readIds: () => Promise.resolve(rows.current), idOf: (e) => e.id ?? "", kinds: [],
  });
  rows.current = list.rows;
  return (
    <>
      <Heading title={text.audit.title} />
      <FilterForm fields={[
        { name: "kind", label: text.audit.kind, options: kinds.map((k) => ({ value: k, label: k })) },
        { name: "name", label: text.node.what, help: text.audit.nameHelp },
        { name: "actor", label: text.audit.actor, help: text.audit.actorHelp },
        { name: "node_id", label: text.jobs.node, help: text.audit.nodeHelp },
        { name: "resource_kind", label: text.audit.resource, help: text.audit.resourceHelp },
        { name: "resource_id", label: text.audit.resourceId },
        { name: "since", label: text.audit.since, help: text.audit.sinceHelp },
        { name: "until", label: text.audit.until, help: text.audit.untilHelp },
      ]} />
      <ListTable list={list} caption={text.audit.caption} columns={columns} />
    </>
  );
}
