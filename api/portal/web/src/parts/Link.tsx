import type { ComponentChildren } from "preact";
import { hrefOf } from "../router";
import { safeHref } from "../safeHref";
import { text } from "../text";

/** Outside is a link to a page that is not the portal's. Without a safe address it is plain text. */
export function Outside({ href, children }: { href: string | undefined; children: ComponentChildren }) {
  const safe = safeHref(href);
  if (!safe) return <span title={text.badLink}>{children}</span>;
  return (
    <a href={safe} target="_blank" rel="noopener noreferrer" data-outside="">
      {children}<span aria-hidden="true"> ↗</span><span class="only-read"> ({text.newTab})</span>
    </a>
  );
}

interface ToProps {
  path: string;
  query?: Record<string, string | undefined>;
  class?: string;
  children: ComponentChildren;
  current?: boolean;
  row?: boolean;
}

/** To is a link to a page of the portal. */
export function To({ path, query, children, current, row, class: name }: ToProps) {
  return <a href={hrefOf(path, query)} class={name} aria-current={current ? "page" : undefined} data-row={row ? "" : undefined}>{children}</a>;
}

/** NodeLink links to a node by its id. */
export function NodeLink({ id, name, row }: { id: string | undefined; name?: string; row?: boolean }) {
  if (!id) return <span class="quiet">{name ?? text.none}</span>;
  return <To path={`/nodes/${encodeURIComponent(id)}`} row={row}>{name || id}</To>;
}

/** JobLink links to a job by its id. */
export function JobLink({ id, name, row }: { id: string | undefined; name?: string; row?: boolean }) {
  if (!id) return <span class="quiet">{name ?? text.none}</span>;
  return <To path={`/jobs/${encodeURIComponent(id)}`} row={row}>{name || id}</To>;
}
