import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { everything, pauseAfter, useLive } from "../live";
import { Badge } from "../parts/Badge";
import { Heading } from "../parts/Facts";
import { NodeLink, To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { choicesOf, nameOf, useSites, useSkus } from "../parts/named";
import type { Named } from "../parts/named";
import { ProblemText } from "../parts/ProblemText";
import { useRead } from "../parts/read";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { hrefOf, place } from "../router";
import { hasRole } from "../session";
import { text, words } from "../text";

type Node = Schemas["Node"];

/** coarse are the states of seed 001 section 9.1: what an inventory shows unless more is asked for. */
const coarse = ["active", "offline", "quarantined", "retired", "removing"];

/** others are reached by the filter alone. */
const others = ["bootstrap_issued", "enrolling", "draining", "deleted", "discovered", "pending", "installing", "install_failed", "installed", "reprovision", "deprovisioning", "migrating"];

const everyState = "every";

/** readNodes reads a page of nodes with the filters of the address. */
function readNodes(filter: URLSearchParams, more: { cursor?: string; ids?: string[] }) {
  const chosen = filter.get("status") ?? "";
  const status = chosen === everyState ? undefined : chosen ? [chosen] : coarse;
  const query = {
    limit: more.ids ? more.ids.length : 50, cursor: more.cursor || undefined, ids: more.ids,
    status: more.ids ? undefined : status, q: filter.get("q") ?? undefined,
    site_id: filter.get("site_id") ?? undefined, sku_id: filter.get("sku_id") ?? undefined, lifecycle: (["maas", "pxe"] as const).find((l) => l === filter.get("lifecycle")),
  };
  return call(() => client.GET("/api/v1/nodes", { params: { query } }));
}

function columns(sites: Named[], skus: Named[]): Column<Node>[] {
  return [
    { label: text.nodes.hostname, header: true, cell: (n) => <NodeLink id={n.id} name={n.hostname} row /> },
    { label: text.nodes.status, cell: (n) => <><Badge status={n.status} />{n.simulated && <span class="quiet"> {text.nodes.simulated}</span>}</> },
    { label: text.nodes.since, cell: (n) => <Time at={n.state_changed_at} /> },
    { label: text.nodes.site, cell: (n) => nameOf(sites, n.site_id) },
    { label: text.nodes.sku, cell: (n) => nameOf(skus, n.sku_id) },
    { label: text.nodes.serial, cell: (n) => n.serial ?? "" },
    { label: text.nodes.lifecycle, cell: (n) => n.lifecycle ?? "" },
  ];
}

/** Counts shows how many nodes are in each coarse state, and how many agents are silent. */
function Counts() {
  const read = useRead("counts", () => call(() => client.GET("/api/v1/nodes/counts")));
  useLive([everything], pauseAfter(10_000, read.again));
  const rows = read.data?.data ?? [];
  const sum = (of: typeof rows, by: "nodes" | "stale") => of.reduce((n, row) => n + (row[by] ?? 0), 0);
  if (!read.data) return <ProblemText problem={read.problem} again={() => void read.again()} />;
  return (
    <ul class="counts" aria-label={text.nodes.counts}>
      {coarse.map((status) => <li key={status}><a href={hrefOf("/nodes", { status })}><Badge status={status} /> {sum(rows.filter((r) => r.status === status), "nodes")}</a></li>)}
      <li class="quiet">{text.nodes.total(read.data.total ?? 0, sum(rows, "stale"))}</li>
    </ul>
  );
}

/** Inventory lists nodes by their coarse state. Stages and job states are on the pages of the jobs. */
export function Inventory() {
  const filter = place.value.query;
  const sites = useSites();
  const skus = useSkus();
  const list = useList<Node>({
    read: (cursor) => readNodes(filter, { cursor }),
    readIds: async (ids) => (await readNodes(filter, { ids })).data ?? [],
    idOf: (n) => n.id ?? "", kinds: ["node"],
  });
  return (
    <>
      <Heading title={text.nodes.title}>
        {hasRole("operator") && <div class="buttons"><To path="/onboard" class="button primary">{text.nodes.onboard}</To></div>}
      </Heading>
      <Counts />
      <FilterForm fields={[
        { name: "q", label: text.nodes.search, help: text.nodes.searchHelp },
        {
          name: "status", label: text.nodes.status, any: text.nodes.coarse,
          options: [{ value: everyState, label: text.nodes.every }, ...[...coarse, ...others].map((s) => ({ value: s, label: words(s) }))],
        },
        { name: "site_id", label: text.nodes.site, options: choicesOf(sites) },
        { name: "sku_id", label: text.nodes.sku, options: choicesOf(skus) },
        { name: "lifecycle", label: text.nodes.lifecycle, options: ["maas", "pxe"].map((l) => ({ value: l, label: l })) },
      ]} />
      <ListTable list={list} caption={text.nodes.caption} columns={columns(sites, skus)} empty={text.nodes.none} />
    </>
  );
}
