import type { Schemas } from "../api/client";
import { text, words } from "../text";
import { Badge } from "./Badge";
import { Json } from "./Json";
import { JobLink } from "./Link";
import type { Column } from "./Table";
import { Time } from "./Time";

/** timelineColumns are those of what happened to one node. */
export const timelineColumns: Column<Schemas["TimelineEntry"]>[] = [
  { label: text.node.when, cell: (e) => <Time at={e.at} /> },
  { label: text.node.what, header: true, cell: (e) => <>{words(e.name)} <span class="quiet">{e.kind}</span></> },
  { label: text.node.state, cell: (e) => (e.to_state && e.from_state !== e.to_state ? <>{words(e.from_state) || "–"} → <Badge status={e.to_state} /></> : e.resource_kind === "job" ? <JobLink id={e.resource_id} name={text.jobs.job} /> : "") },
  { label: text.node.who, cell: (e) => e.actor || e.triggered_by || "" },
  { label: text.node.detail, cell: (e) => <>{e.comment}<Json value={e.metadata} label={text.node.detail} /></> },
];
