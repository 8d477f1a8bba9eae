import { Anchor, Button, NativeSelect } from "@mantine/core";
import { useState } from "react";
import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { later } from "../api";
import { DataTable } from "../parts/DataTable";
import type { Column } from "../parts/DataTable";
import { Heading } from "../parts/Facts";
import { Paged } from "../parts/Paged";
import { Status, words } from "../parts/Status";
import { Time } from "../parts/Time";
import { tagsText } from "../parts/tags";
import type { PageProps } from "../pages";
import { projectHref } from "../route";

type AllocationView = Schemas["Allocation"];

/** stageText says how far the job of an allocation is. */
export function stageText(progress: Schemas["AllocationProgress"] | undefined): string {
  return progress ? `${progress.percent ?? 0} %, ${words(progress.stage)}` : "";
}

const columns = (project: string): Column<AllocationView>[] => [
  { label: "Name", header: true, cell: (a) => <Anchor href={projectHref(project, `/allocations/${encodeURIComponent(a.id ?? "")}`)}>{a.name || a.id || ""}</Anchor> },
  { label: "Status", cell: (a) => <Status of={a.status} /> },
  { label: "Condition", cell: (a) => a.status === "active" && <Status of={a.condition} /> },
  { label: "Progress", cell: (a) => stageText(a.progress) },
  { label: "SKU", cell: (a) => a.sku },
  { label: "Tags", cell: (a) => tagsText(a.tags, ", ") },
  { label: "Requested", cell: (a) => <Time at={a.requested_at} /> },
];

/** AllocationTable lists allocations of a project. */
export function AllocationTable({ project, rows, empty }: { project: string; rows: AllocationView[]; empty: string }) {
  return <DataTable caption="Allocations of the project" rows={rows} keyOf={(a) => a.id ?? ""} empty={empty} columns={columns(project)} />;
}

const statuses = ["requested", "provisioning", "active", "releasing", "released", "failed", "release_failed"];

/** Allocations lists all allocations of a project, those that ended too. */
export function Allocations({ project }: PageProps) {
  const [status, setStatus] = useState("");
  return (
    <>
      <Heading side={<Button component="a" href={projectHref(project, "/catalogue")}>Order a node</Button>}>Allocations</Heading>
      <NativeSelect label="Status" value={status} onChange={(e) => setStatus(e.currentTarget.value)} className="narrow"
        data={[{ value: "", label: "every status" }, ...statuses.map((s) => ({ value: s, label: words(s) }))]} />
      <Paged<AllocationView> key={status} name={["allocations", project, status]} caption="Allocations of the project" every={later} keyOf={(a) => a.id ?? ""} empty="There is no allocation." columns={columns(project)}
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/allocations", { params: { path: { id: project }, query: { limit: 50, cursor, status: status ? [status] : undefined } } }))} />
    </>
  );
}
