import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { useLive } from "../live";
import { askDelete } from "../parts/askDelete";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { useRead } from "../parts/read";
import { Spec } from "../parts/Spec";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text } from "../text";
import type { PageProps } from ".";

type Sku = Schemas["SKU"];

const columns: Column<Sku>[] = [
  { label: text.sites.name, header: true, cell: (s) => <To path={`/skus/${encodeURIComponent(s.id ?? "")}`} row>{s.name}</To> },
  { label: text.node.gpus, cell: (s) => [s.spec?.gpus && `${s.spec.gpus} ×`, s.spec?.gpu_model_contains].filter(Boolean).join(" ") },
  { label: text.skus.dataDisks, number: true, cell: (s) => s.spec?.data_disks },
  { label: text.sites.changed, cell: (s) => <Time at={s.updated_at} /> },
];

/** Skus lists the SKUs: what a node must have to be healthy. */
export function Skus() {
  const name = place.value.query.get("name") ?? undefined;
  const list = useList<Sku>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/skus", { params: { query: { limit: 50, cursor: cursor || undefined, name } } })),
    idOf: (s) => s.id ?? "", kinds: ["sku"],
  });
  return (
    <>
      <Heading title={text.skus.title}>{hasRole("admin") && <div class="buttons"><To path="/skus/new" class="button primary">{text.skus.create}</To></div>}</Heading>
      <FilterForm fields={[{ name: "name", label: text.sites.name }]} />
      <ListTable list={list} caption={text.skus.title} columns={columns} empty={text.skus.none} />
    </>
  );
}

/** SkuPage shows one SKU. */
export function SkuPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/skus/{id}", { params: { path: { id } } })));
  useLive([id], read.again);
  const remove = (sku: Sku) => askDelete({
    name: sku.name ?? id, help: text.spec.deleteHelp, back: "/skus",
    send: () => call(() => client.DELETE("/api/v1/admin/skus/{id}", { params: { path: { id }, header: { "If-Match": `"${sku.version ?? 0}"` } } })),
  });
  return (
    <Loaded read={read} title={id}>
      {(sku) => (
        <>
          <Heading title={`${text.nodes.sku}: ${sku.name ?? id}`}>
            {hasRole("admin") && (
              <div class="buttons">
                <To path={`/skus/${encodeURIComponent(id)}/edit`} class="button">{text.spec.edit}</To>
                <button type="button" class="danger" onClick={() => remove(sku)}>{text.projects.delete}</button>
              </div>
            )}
          </Heading>
          <Facts facts={[[text.node.id, <code>{sku.id}</code>], [text.sites.changed, <Time at={sku.updated_at} />], [text.nodes.title, <To path="/nodes" query={{ sku_id: id }}>{text.skus.nodes}</To>]]} />
          <Section title={text.skus.requires}><Spec spec={sku.spec} /></Section>
        </>
      )}
    </Loaded>
  );
}
