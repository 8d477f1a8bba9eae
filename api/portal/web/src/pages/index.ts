import type { ComponentType } from "preact";
import { Inventory } from "./Inventory";
import { text } from "../text";

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
  { path: "/nodes", title: text.nodes.title, view: Inventory, nav: { group: text.groups.fleet } },
];
