import type { ComponentType } from "preact";
import { text } from "../text";
import { AttentionPage } from "./Attention";
import { BatchPage, Batches } from "./Batches";
import { DecommissionPage } from "./Decommission";
import { DriftPage, FindingPage } from "./Drift";
import { Inventory } from "./Inventory";
import { JobPage } from "./Job";
import { Jobs } from "./Jobs";
import { NodePage } from "./Node";
import { Onboard } from "./Onboard";

/** PageProps are given to each page: the parameters of its path. */
export interface PageProps {
  params: Record<string, string>;
}

/** Page is a page of the portal: a file in this folder, and a row in the table below. */
export interface Page {
  path: string;
  title: string;
  view: ComponentType<PageProps>;
  /** Where it stands in the menu; a page without it is reached by links. */
  nav?: { group: string };
  /** The lowest role that the page is for; viewer when absent. */
  role?: "viewer" | "operator" | "admin";
}

/** pages lists all pages; the first whose path matches is shown. The menu has their order. */
export const pages: Page[] = [
  { path: "/attention", title: text.attention.title, view: AttentionPage, nav: { group: text.groups.operate } },
  { path: "/jobs", title: text.jobs.title, view: Jobs, nav: { group: text.groups.operate } },
  { path: "/jobs/:id", title: text.jobs.job, view: JobPage },
  { path: "/batches", title: text.batches.title, view: Batches, nav: { group: text.groups.operate } },
  { path: "/batches/:id", title: text.batches.title, view: BatchPage },
  { path: "/drift", title: text.drift.title, view: DriftPage, nav: { group: text.groups.operate } },
  { path: "/drift/:id", title: text.drift.title, view: FindingPage },
  { path: "/nodes", title: text.nodes.title, view: Inventory, nav: { group: text.groups.fleet } },
  { path: "/nodes/:id", title: text.jobs.node, view: NodePage },
  { path: "/nodes/:id/decommission", title: text.decommission.title, view: DecommissionPage, role: "operator" },
  { path: "/onboard", title: text.onboard.title, view: Onboard, nav: { group: text.groups.fleet }, role: "operator" },
];
