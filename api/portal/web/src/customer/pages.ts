import { lazy } from "react";
import type { ComponentType } from "react";

/** PageProps are the parts of an address: the project, and what the page is about. */
export interface PageProps {
  project: string;
  id: string;
}

interface Page {
  path: string;
  view: ComponentType<PageProps>;
}

/** nodes, money and access are the parts of the bundle that the pages are loaded with, when one of them is first shown. */
const nodes = (name: "Home" | "Overview" | "Catalogue" | "Order" | "Allocations" | "Allocation" | "Keys") => lazy(async () => ({ default: (await import("./pages/nodes"))[name] }));
const money = (name: "Balance" | "Usage" | "Ledger" | "Statement") => lazy(async () => ({ default: (await import("./pages/money"))[name] }));
const access = (name: "Members" | "Tokens" | "Webhooks" | "Webhook" | "Notices" | "Instances") => lazy(async () => ({ default: (await import("./pages/access"))[name] }));

/** pages are all pages, by their path below customersBase. */
export const pages: Page[] = [
  { path: "/", view: nodes("Home") },
  { path: "/projects/:project", view: nodes("Overview") },
  { path: "/projects/:project/catalogue", view: nodes("Catalogue") },
  { path: "/projects/:project/catalogue/:id", view: nodes("Order") },
  { path: "/projects/:project/allocations", view: nodes("Allocations") },
  { path: "/projects/:project/allocations/:id", view: nodes("Allocation") },
  { path: "/projects/:project/keys", view: nodes("Keys") },
  { path: "/projects/:project/balance", view: money("Balance") },
  { path: "/projects/:project/usage", view: money("Usage") },
  { path: "/projects/:project/ledger", view: money("Ledger") },
  { path: "/projects/:project/statement", view: money("Statement") },
  { path: "/projects/:project/members", view: access("Members") },
  { path: "/projects/:project/tokens", view: access("Tokens") },
  { path: "/projects/:project/webhooks", view: access("Webhooks") },
  { path: "/projects/:project/webhooks/:id", view: access("Webhook") },
  { path: "/projects/:project/notices", view: access("Notices") },
  { path: "/projects/:project/instances", view: access("Instances") },
];
