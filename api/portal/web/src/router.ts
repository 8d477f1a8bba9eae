import { signal } from "@preact/signals";
import { base } from "./base";

export { base, matchPath } from "./base";

/** Place is where the portal is: a path below base, its query, and what the history entry keeps. */
export interface Place {
  path: string;
  query: URLSearchParams;
  state: PlaceState;
}

/** PlaceState is kept by the browser with a history entry. */
export interface PlaceState {
  /** The cursors of the pages before this one; "" is the first page. */
  cursors?: string[];
}

function readPlace(): Place {
  const path = window.location.pathname.startsWith(base) ? window.location.pathname.slice(base.length) : "/";
  return {
    path: path.length > 1 ? path.replace(/\/+$/, "") : "/",
    query: new URLSearchParams(window.location.search),
    state: (window.history.state as PlaceState | null) ?? {},
  };
}

/** place is the current place. */
export const place = signal<Place>(readPlace());

/** hrefOf returns the address of a portal path, with the parts of the query that are set. */
export function hrefOf(path: string, query?: URLSearchParams | Record<string, string | undefined>): string {
  const search = new URLSearchParams();
  const pairs = query instanceof URLSearchParams ? [...query] : Object.entries(query ?? {});
  for (const [name, value] of pairs) if (value) search.append(name, value);
  const text = search.toString();
  return base + path + (text ? "?" + text : "");
}

/** navigate goes to a place of the portal. With replace it takes the current history entry. */
export function navigate(href: string, options: { replace?: boolean; state?: PlaceState } = {}): void {
  const state = options.state ?? {};
  const pathBefore = place.value.path;
  if (options.replace) window.history.replaceState(state, "", href);
  else window.history.pushState(state, "", href);
  place.value = readPlace();
  if (place.value.path !== pathBefore) window.scrollTo(0, 0);
}

/** watchPlace follows the browser's back and forward buttons and the clicks on links of the portal. */
export function watchPlace(): void {
  window.addEventListener("popstate", () => { place.value = readPlace(); });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download") || link.dataset.outside !== undefined) return;
    const url = new URL(link.href, window.location.href);
    if (url.origin !== window.location.origin || (url.pathname !== base && !url.pathname.startsWith(base + "/"))) return;
    if (url.pathname.startsWith(base + "/oidc/") || url.hash) return;
    event.preventDefault();
    navigate(url.pathname + url.search);
  });
}
