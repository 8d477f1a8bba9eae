import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { askAction } from "../parts/ActionForm";
import { Badge } from "../parts/Badge";
import { Heading } from "../parts/Facts";
import { To } from "../parts/Link";
import { ListTable, useList } from "../parts/list";
import { choicesOf, useSkus } from "../parts/named";
import type { Named } from "../parts/named";
import type { Column } from "../parts/Table";
import { hasRole } from "../session";
import { text, words } from "../text";

type Item = Schemas["CatalogueItem"];

/** Catalogue lists the SKUs that customers are offered. */
export function Catalogue() {
  const skus = useSkus();
  const list = useList<Item>({
    read: (cursor) => call(() => client.GET("/api/v1/catalogue", { params: { query: { limit: 50, cursor: cursor || undefined } } })),
    idOf: (i) => i.sku_id ?? "", kinds: ["catalogue_item", "sku"],
  });
  const columns: Column<Item>[] = [
    { label: text.catalogue.item, header: true, cell: (i) => i.title },
    { label: text.nodes.sku, cell: (i) => <To path={`/skus/${encodeURIComponent(i.sku_id ?? "")}`} row>{i.sku}</To> },
    { label: text.catalogue.availability, cell: (i) => <Badge status={i.availability} tone="quiet" /> },
    { label: text.node.gpus, cell: (i) => [i.gpus && `${i.gpus} ×`, i.gpu_model].filter(Boolean).join(" ") },
    { label: text.catalogue.image, cell: (i) => [i.image?.os, i.image?.kernel, i.image?.architecture].filter(Boolean).join(" · ") },
    { label: text.catalogue.isolation, cell: (i) => words(i.isolation) },
    { label: text.catalogue.description, cell: (i) => i.description ?? "" },
    ...(hasRole("admin") ? [{ label: text.action.title, cell: (i: Item) => <button type="button" aria-label={`${text.catalogue.withdraw}: ${i.title ?? ""}`} onClick={() => askWithdraw(i, list.reload)}>{text.catalogue.withdraw}</button> }] : []),
  ];
  return (
    <>
      <Heading title={text.catalogue.title}>{hasRole("admin") && <div class="buttons"><button type="button" class="primary" onClick={() => askOffer(skus, list.reload)}>{text.catalogue.offer}</button></div>}</Heading>
      <ListTable list={list} caption={text.catalogue.title} columns={columns} />
    </>
  );
}

function askOffer(skus: Named[], again: () => void): void {
  askAction({
    title: text.catalogue.offer, button: text.catalogue.offer, body: text.catalogue.offerHelp, reason: "none", done: again,
    fields: [
      { name: "sku", label: text.nodes.sku, kind: "select", required: true, options: [{ value: "", label: text.onboard.choose }, ...choicesOf(skus)] },
      { name: "profile", label: text.node.profile, kind: "text", required: true, help: text.catalogue.profileHelp },
      { name: "title", label: text.catalogue.item, kind: "text", required: true },
      { name: "description", label: text.catalogue.description, kind: "text", max: 2000 },
      { name: "isolation", label: text.catalogue.isolation, kind: "select", options: isolations.map((i) => ({ value: i, label: words(i) })) },
    ],
    send: async ({ values }) => {
      const isolation = isolations.find((i) => i === values["isolation"]) ?? isolations[0];
      const body = { profile_id: values["profile"] ?? "", title: values["title"] ?? "", description: values["description"] || undefined, isolation };
      await call(() => client.PUT("/api/v1/admin/catalogue/{sku}", { params: { path: { sku: values["sku"] ?? "" } }, body }));
      return text.spec.saved;
    },
  });
}

const isolations = ["dedicated_network", "shared_network"] as const;

function askWithdraw(item: Item, again: () => void): void {
  askAction({
    title: `${text.catalogue.withdraw}: ${item.title ?? ""}`, button: text.catalogue.withdraw, body: text.catalogue.withdrawHelp, reason: "none", danger: true, done: again,
    send: async () => {
      await call(() => client.DELETE("/api/v1/admin/catalogue/{sku}", { params: { path: { sku: item.sku_id ?? "" } } }));
      return text.action.sent;
    },
  });
}
