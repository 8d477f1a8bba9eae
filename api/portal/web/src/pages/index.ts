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
import { lazy } from "../parts/lazy";

/** rare returns a page that is loaded with the others of more.ts when one of them is first shown. */
function rare(title: string, name: keyof typeof import("./more")): ComponentType<PageProps> {
  return lazy(title, async () => (await import("./more"))[name]);
}

/** automated returns a page that is loaded with the others of automation.ts when one of them is first shown. */
function automated(title: string, name: keyof typeof import("./automation")): ComponentType<PageProps> {
  return lazy(title, async () => (await import("./automation"))[name]);
}

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
  { path: "/statistics", title: text.stats.title, view: rare(text.stats.title, "Statistics"), nav: { group: text.groups.fleet } },
  { path: "/bmcs", title: text.bmcs.title, view: rare(text.bmcs.title, "Bmcs"), nav: { group: text.groups.fleet } },
  { path: "/bmcs/:id", title: text.node.bmc, view: rare(text.node.bmc, "BmcPage") },
  { path: "/machines", title: text.automation.machines, view: automated(text.automation.machines, "Machines"), nav: { group: text.groups.automate } },
  { path: "/machines/:id", title: text.automation.machine, view: automated(text.automation.machine, "MachinePage") },
  { path: "/runs", title: text.automation.runs, view: automated(text.automation.runs, "Runs"), nav: { group: text.groups.automate } },
  { path: "/runs/:id", title: text.automation.run, view: automated(text.automation.run, "RunPage") },
  { path: "/plans", title: text.automation.plans, view: automated(text.automation.plans, "Plans"), nav: { group: text.groups.automate } },
  { path: "/plans/:id", title: text.automation.plan, view: automated(text.automation.plan, "PlanPage") },
  { path: "/sites", title: text.sites.title, view: rare(text.sites.title, "Sites"), nav: { group: text.groups.configure } },
  { path: "/sites/new", title: text.sites.create, view: rare(text.sites.create, "NewSite"), role: "admin" },
  { path: "/sites/:id", title: text.nodes.site, view: rare(text.nodes.site, "SitePage") },
  { path: "/sites/:id/edit", title: text.spec.edit, view: rare(text.spec.edit, "EditSite"), role: "admin" },
  { path: "/sites/:id/profiles/new", title: text.sites.createProfile, view: rare(text.sites.createProfile, "NewProfile"), role: "admin" },
  { path: "/sites/:id/profiles/:profile", title: text.sites.profile, view: rare(text.sites.profile, "ProfilePage") },
  { path: "/sites/:id/profiles/:profile/edit", title: text.spec.edit, view: rare(text.spec.edit, "EditProfile"), role: "admin" },
  { path: "/skus", title: text.skus.title, view: rare(text.skus.title, "Skus"), nav: { group: text.groups.configure } },
  { path: "/skus/new", title: text.skus.create, view: rare(text.skus.create, "NewSku"), role: "admin" },
  { path: "/skus/:id", title: text.nodes.sku, view: rare(text.nodes.sku, "SkuPage") },
  { path: "/skus/:id/edit", title: text.spec.edit, view: rare(text.spec.edit, "EditSku"), role: "admin" },
  { path: "/install-workflows", title: text.installs.title, view: rare(text.installs.title, "InstallWorkflows"), nav: { group: text.groups.configure }, role: "operator" },
  { path: "/install-workflows/new", title: text.installs.create, view: rare(text.installs.create, "NewInstallWorkflow"), role: "admin" },
  { path: "/install-workflows/:id", title: text.installs.one, view: rare(text.installs.one, "InstallWorkflowPage"), role: "operator" },
  { path: "/install-workflows/:id/edit", title: text.spec.edit, view: rare(text.spec.edit, "EditInstallWorkflow"), role: "admin" },
  { path: "/billing-accounts", title: text.accounts.title, view: rare(text.accounts.title, "Accounts"), nav: { group: text.groups.customers } },
  { path: "/billing-accounts/:id", title: text.accounts.one, view: rare(text.accounts.one, "AccountPage") },
  { path: "/projects", title: text.projects.title, view: rare(text.projects.title, "Projects"), nav: { group: text.groups.customers } },
  { path: "/projects/:id", title: text.projects.one, view: rare(text.projects.one, "ProjectPage") },
  { path: "/projects/:id/:part", title: text.projects.one, view: rare(text.projects.one, "ProjectPartPage") },
  { path: "/projects/:id/webhooks/:hook", title: text.webhooks.one, view: rare(text.webhooks.one, "WebhookPage") },
  { path: "/projects/:id/allocations/:allocation", title: text.allocations.one, view: rare(text.allocations.one, "ProjectAllocationPage") },
  { path: "/allocations", title: text.allocations.title, view: rare(text.allocations.title, "Allocations"), nav: { group: text.groups.customers } },
  { path: "/allocations/:id", title: text.allocations.one, view: rare(text.allocations.one, "AllocationPage") },
  { path: "/instances", title: text.automation.instances, view: automated(text.automation.instances, "Instances"), nav: { group: text.groups.customers } },
  { path: "/instances/:id", title: text.automation.instance, view: automated(text.automation.instance, "InstancePage") },
  { path: "/payments", title: text.payments, view: rare(text.payments, "Payments"), nav: { group: text.groups.customers }, role: "operator" },
  { path: "/payments/:id", title: text.payments, view: rare(text.payments, "PaymentPage"), role: "operator" },
  { path: "/prices", title: text.prices, view: rare(text.prices, "Prices"), nav: { group: text.groups.customers } },
  { path: "/prices/new", title: text.prices, view: rare(text.prices, "NewPrice"), role: "admin" },
  { path: "/catalogue", title: text.catalogue.title, view: rare(text.catalogue.title, "Catalogue"), nav: { group: text.groups.customers } },
  { path: "/audit", title: text.audit.title, view: rare(text.audit.title, "Audit"), nav: { group: text.groups.access }, role: "operator" },
  { path: "/api-tokens", title: text.tokens.title, view: rare(text.tokens.title, "Tokens"), nav: { group: text.groups.access }, role: "admin" },
  { path: "/documentation", title: text.docs.title, view: rare(text.docs.title, "Documentation"), nav: { group: text.groups.help } },
];
