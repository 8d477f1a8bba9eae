import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { asProblem } from "../api/problem";
import { liveStatus } from "../live";
import { pages } from "../pages";
import { place } from "../router";
import { hasRole, session, signOut } from "../session";
import { text } from "../text";
import { To } from "./Link";
import { leaveNotice, Notice, tell } from "./notice";
import { moveRow } from "./Table";

/** Layout is the frame of every page: menu, who is signed in, and whether changes arrive. */
export function Layout({ title, children }: { title: string; children: ComponentChildren }) {
  const [menu, setMenu] = useState(false);
  const path = place.value.path;
  useEffect(() => { document.title = `${title} · ${text.product}`; }, [title]);
  useEffect(() => {
    setMenu(false);
    leaveNotice();
    // A new page begins at its title, once the dialogs of the page before are closed.
    const focus = setTimeout(() => {
      if (document.activeElement === document.body || document.activeElement?.closest("nav, a")) document.getElementById("page-title")?.focus();
    });
    return () => clearTimeout(focus);
  }, [path]);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.target instanceof Element && event.target.closest("input, select, textarea")) return;
      if (event.key === "j") moveRow(1);
      if (event.key === "k") moveRow(-1);
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  return (
    <>
      <a class="skip" href="#content" onClick={(e) => { e.preventDefault(); document.getElementById("content")?.focus(); }}>{text.skip}</a>
      <header class="top">
        <span class="brand">{text.product}</span>
        <button type="button" class="menu-button" aria-expanded={menu} aria-controls="menu" onClick={() => setMenu(!menu)}>☰ {text.openMenu}</button>
        <LiveMark />
        <Who />
      </header>
      <div class="frame">
        <nav id="menu" class={menu ? "menu menu--open" : "menu"} aria-label={text.navigation}><Menu path={path} /></nav>
        <main id="content" tabIndex={-1}><Notice />{children}</main>
      </div>
    </>
  );
}

function Menu({ path }: { path: string }) {
  const shown = pages.filter((p) => p.nav && hasRole(p.role ?? "viewer"));
  const groups = [...new Set(shown.map((p) => p.nav?.group ?? ""))];
  return (
    <>
      {groups.map((group) => (
        <div key={group}>
          <h2>{group}</h2>
          <ul>
            {shown.filter((p) => p.nav?.group === group).map((p) => (
              <li key={p.path}><To path={p.path} current={path === p.path}>{p.title}</To></li>
            ))}
          </ul>
        </div>
      ))}
      <p class="quiet only-wide">{text.keys}</p>
    </>
  );
}

function LiveMark() {
  const status = liveStatus.value;
  const symbol = status === "open" ? "●" : status === "connecting" ? "◌" : "▲";
  return <span role="status" class={`live live--${status}`} data-testid="live"><span aria-hidden="true">{symbol} </span>{text.live[status]}</span>;
}

function Who() {
  const who = session.value;
  if (!who) return null;
  const leave = () => { signOut().catch((error: unknown) => tell(asProblem(error).detail ?? "")); };
  return (
    <span class="who">
      <span class="only-read">{text.session.signedInAs} </span>
      <strong title={`${text.session.roles}: ${who.principal.roles.join(", ")}`}>{who.principal.name}</strong>
      <button type="button" class="plain" onClick={leave}>{text.session.signOut}</button>
    </span>
  );
}
