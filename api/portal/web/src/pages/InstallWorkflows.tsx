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

type Workflow = Schemas["InstallWorkflow"];

const columns: Column<Workflow>[] = [
  { label: text.sites.name, header: true, cell: (w) => <To path={`/install-workflows/${encodeURIComponent(w.id ?? "")}`} row>{w.name}</To> },
  { label: text.installs.kernel, cell: (w) => w.spec?.kernel?.url ?? "" },
  { label: text.installs.deadline, number: true, cell: (w) => w.spec?.deadline_minutes },
  { label: text.sites.changed, cell: (w) => <Time at={w.updated_at} /> },
];

/** InstallWorkflows lists how nodes without MAAS are installed over the network. */
export function InstallWorkflows() {
  const name = place.value.query.get("name") ?? undefined;
  const list = useList<Workflow>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/install-workflows", { params: { query: { limit: 50, cursor: cursor || undefined, name } } })),
    idOf: (w) => w.id ?? "", kinds: ["install_workflow"],
  });
  return (
    <>
      <Heading title={text.installs.title}>
        <To path="/nodes" query={{ lifecycle: "pxe", status: "every" }}>{text.installs.nodes}</To>
        {hasRole("admin") && <div class="buttons"><To path="/install-workflows/new" class="button primary">{text.installs.create}</To></div>}
      </Heading>
      <FilterForm fields={[{ name: "name", label: text.sites.name }]} />
      <ListTable list={list} caption={text.installs.title} columns={columns} empty={text.installs.none} />
    </>
  );
}

/** InstallWorkflowPage shows one install workflow. */
export function InstallWorkflowPage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/install-workflows/{id}", { params: { path: { id } } })));
  useLive([id], read.again);
  const remove = (workflow: Workflow) => askDelete({
    name: workflow.name ?? id, help: text.spec.deleteHelp, back: "/install-workflows",
    send: () => call(() => client.DELETE("/api/v1/admin/install-workflows/{id}", { params: { path: { id }, header: { "If-Match": `"${workflow.version ?? 0}"` } } })),
  });
  return (
    <Loaded read={read} title={id}>
      {(workflow) => (
        <>
          <Heading title={`${text.installs.one}: ${workflow.name ?? id}`}>
            {hasRole("admin") && (
              <div class="buttons">
                <To path={`/install-workflows/${encodeURIComponent(id)}/edit`} class="button">{text.spec.edit}</To>
                <button type="button" class="danger" onClick={() => remove(workflow)}>{text.projects.delete}</button>
              </div>
            )}
          </Heading>
          <Facts facts={[[text.node.id, <code>{workflow.id}</code>], [text.sites.changed, <Time at={workflow.updated_at} />]]} />
          <Section title={text.spec.title}><Spec spec={workflow.spec} /></Section>
        </>
      )}
    </Loaded>
  );
}
