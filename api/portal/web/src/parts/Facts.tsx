import type { ComponentChildren } from "preact";
import { text } from "../text";

/** Facts is a list of names and values; what has no value is left out. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  const known = facts.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return <dl class="facts">{known.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value === true ? text.yes : value}</dd></div>)}</dl>;
}

/** Section is a part of a page with its heading. */
export function Section({ title, children, side }: { title: string; children: ComponentChildren; side?: ComponentChildren }) {
  return (
    <section class="section" aria-label={title}>
      <header class="section-head"><h2>{title}</h2>{side}</header>
      {children}
    </section>
  );
}

/** Heading is the title of a page, with its state and what belongs to it. */
export function Heading({ title, children }: { title: string; children?: ComponentChildren }) {
  return <header class="page-head"><h1 tabIndex={-1} id="page-title">{title}</h1>{children}</header>;
}

/** Bytes writes a size in decimal units, as drives are sold. */
export function bytes(n: number | undefined): string {
  if (!n) return "";
  const names = ["B", "kB", "MB", "GB", "TB", "PB"];
  const power = Math.min(names.length - 1, Math.floor(Math.log10(n) / 3));
  return `${(n / 1000 ** power).toLocaleString("en", { maximumFractionDigits: 1 })} ${names[power] ?? ""}`;
}
