import { Anchor, Button, Group, NativeSelect, NavLink, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { useInvitations, useProjects } from "./api";
import { hrefOf, navigate, projectHref, usePlace } from "./route";
import { signOut, useSession } from "./session";

/** menu are the pages of a project, by group. */
const menu: { group: string; pages: [string, string][] }[] = [
  { group: "Nodes", pages: [["", "Overview"], ["/catalogue", "Order a node"], ["/allocations", "Allocations"], ["/instances", "Instances"]] },
  { group: "Money", pages: [["/balance", "Balance and top-up"], ["/usage", "Usage"], ["/ledger", "Ledger"], ["/statement", "Statement"]] },
  { group: "Project", pages: [["/keys", "SSH keys"], ["/members", "Members"], ["/tokens", "API tokens"], ["/webhooks", "Webhooks"], ["/notices", "Notices"]] },
];

/** Shell is the frame of every page: the menu of the project, and who is signed in. */
export function Shell({ project, children }: { project?: string; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const { path } = usePlace();
  useEffect(() => setOpen(false), [path]);
  return (
    <>
      <Anchor className="skip" href="#content" onClick={(e) => { e.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</Anchor>
      <header className="top">
        <Anchor href={hrefOf("/")} className="brand">Slipway</Anchor>
        <Button className="menu-button" variant="default" size="compact-md" aria-expanded={open} aria-controls="menu" onClick={() => setOpen(!open)}>Menu</Button>
        <Who />
      </header>
      <div className="frame">
        <nav id="menu" aria-label="Main" className={open ? "menu menu-open" : "menu"}><Menu project={project} path={path ?? ""} /></nav>
        <main id="content" tabIndex={-1}>{children}</main>
      </div>
    </>
  );
}

function Menu({ project, path }: { project: string | undefined; path: string }) {
  const projects = useProjects();
  const invitations = useInvitations();
  const waiting = invitations.data?.length ?? 0;
  const choices = projects.data ?? [];
  return (
    <>
      <NavLink href={hrefOf("/")} active={path === "/"} aria-current={path === "/" ? "page" : undefined} label={waiting > 0 ? `Projects and invitations (${waiting})` : "Projects and invitations"} />
      {project && choices.some((p) => p.id === project) && (
        <NativeSelect label="Project" value={project} onChange={(e) => navigate(projectHref(e.currentTarget.value))}
          data={choices.map((p) => ({ value: p.id ?? "", label: p.name ?? p.id ?? "" }))} />
      )}
      {project && menu.map(({ group, pages }) => (
        <div key={group}>
          <h2 className="menu-group">{group}</h2>
          {pages.map(([page, name]) => {
            const here = `/projects/${encodeURIComponent(project)}${page}`;
            const current = path === here;
            return <NavLink key={page} href={projectHref(project, page)} label={name} active={current} aria-current={current ? "page" : undefined} />;
          })}
        </div>
      ))}
    </>
  );
}

function Who() {
  const session = useSession();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const leave = () => { void signOut().finally(() => window.location.reload()); };
  return (
    <Group gap="xs" className="who">
      <span>{session.data?.principal.name}</span>
      <Button variant="subtle" size="compact-sm" onClick={() => setColorScheme(scheme === "dark" ? "light" : "dark")}>{scheme === "dark" ? "Light theme" : "Dark theme"}</Button>
      <Button variant="subtle" size="compact-sm" onClick={leave}>Sign out</Button>
    </Group>
  );
}
