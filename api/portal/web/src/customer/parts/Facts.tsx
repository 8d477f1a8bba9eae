import { Title } from "@mantine/core";
import { useEffect, useId } from "react";
import type { ReactNode } from "react";

/** Facts lists names and what they are. Those without a value are left out. */
export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  const shown = facts.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return <dl className="facts">{shown.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

/** Heading is the title of a page, which the focus goes to when the page is opened. */
export function Heading({ children, side }: { children: string; side?: ReactNode }) {
  useEffect(() => { document.title = `${children} · Slipway`; }, [children]);
  useEffect(() => {
    if (document.activeElement === document.body || document.activeElement?.closest("nav, a")) document.getElementById("page-title")?.focus();
  }, []);
  return <div className="heading"><Title order={1} id="page-title" tabIndex={-1}>{children}</Title>{side}</div>;
}

/** Section is a titled part of a page. */
export function Section({ title, children, side }: { title: string; children: ReactNode; side?: ReactNode }) {
  const id = useId();
  return (
    <section aria-labelledby={id} className="section">
      <div className="heading"><Title order={2} size="h4" id={id}>{title}</Title>{side}</div>
      {children}
    </section>
  );
}
