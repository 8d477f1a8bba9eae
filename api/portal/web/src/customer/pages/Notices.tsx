import { call, client } from "../../api/client";
import type { Schemas } from "../../api/client";
import { later } from "../api";
import { Heading } from "../parts/Facts";
import { Paged } from "../parts/Paged";
import { words } from "../parts/Status";
import { Time } from "../parts/Time";
import type { PageProps } from "../pages";

type Notice = Schemas["Notice"];

/** Notices lists what the project was told, and to whom it was sent. */
export function Notices({ project }: PageProps) {
  return (
    <>
      <Heading>Notices</Heading>
      <Paged<Notice> name={["notices", project]} caption="Notices of the project" every={later} keyOf={(n) => n.id ?? ""} empty="There is no notice."
        read={(cursor) => call(() => client.GET("/api/v1/projects/{id}/notices", { params: { path: { id: project }, query: { limit: 50, cursor } } }))}
        columns={[
          { label: "Notice", header: true, cell: (n) => n.message },
          { label: "Kind", cell: (n) => words(n.kind) },
          { label: "Node", cell: (n) => n.node },
          { label: "When", cell: (n) => <Time at={n.created_at} /> },
          { label: "Sent", cell: (n) => n.deliveries?.map((d) => [words(d.channel), d.to, d.status, d.error].filter(Boolean).join(" ")).join("; ") },
        ]} />
    </>
  );
}
