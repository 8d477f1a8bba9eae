import { useSyncExternalStore } from "react";
import { base } from "../base";
import { customersBase } from "./place";

/** Place is where the portal is: a path below customersBase, or undefined for any other, and its query. */
export interface Place {
  path: string | undefined;
  query: URLSearchParams;
}

const listeners = new Set<() => void>();
let place = readPlace();

function readPlace(): Place {
  const { pathname, search } = window.location;
  const inside = pathname === customersBase || pathname.startsWith(customersBase + "/");
  const path = inside ? pathname.slice(customersBase.length).replace(/\/+$/, "") || "/" : undefined;
  return { path, query: new URLSearchParams(search) };
}

function moved(): void {
  place = readPlace();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** usePlace returns the current place. */
export function usePlace(): Place {
  return useSyncExternalStore(subscribe, () => place);
}

/** hrefOf returns the address of a page of the customers', with the parts of the query that are set. */
export function hrefOf(path: string, query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.append(name, value);
  const text = search.toString();
  return customersBase + (path === "/" ? "/" : path) + (text ? "?" + text : "");
}

/** projectHref returns the address of a page of a project. */
export function projectHref(project: string, page = "", query: Record<string, string | undefined> = {}): string {
  return hrefOf(`/projects/${encodeURIComponent(project)}${page}`, query);
}

/** navigate goes to an address of the customers' pages. With replace it takes the current history entry. */
export function navigate(href: string, replace = false): void {
  const before = place.path;
  if (replace) window.history.replaceState({}, "", href);
  else window.history.pushState({}, "", href);
  moved();
  if (place.path !== before) window.scrollTo(0, 0);
}

/** isFirstPage says whether the browser is at the first page of the whole portal. */
export function isFirstPage(): boolean {
  return window.location.pathname === base || window.location.pathname === base + "/";
}

/** watchPlace follows the browser's back and forward buttons and the clicks on links of these pages. */
export function watchPlace(): void {
  window.addEventListener("popstate", moved);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href, window.location.href);
    if (url.origin !== window.location.origin || url.hash || (url.pathname !== customersBase && !url.pathname.startsWith(customersBase + "/"))) return;
    event.preventDefault();
    navigate(url.pathname + url.search);
  });
}
