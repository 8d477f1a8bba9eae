import { To } from "../parts/Link";
import { place } from "../router";
import { text } from "../text";

/** projectParts are the lists of a project, by the last part of their address. */
export const projectParts = ["allocations", "members", "invitations", "keys", "tokens", "webhooks", "notices", "balance", "payments", "usage", "ledger", "statement", "audit"] as const;

/** ProjectNav links to the lists of a project. Each is read when it is opened, with the reason. */
export function ProjectNav({ id }: { id: string }) {
  const base = `/projects/${encodeURIComponent(id)}`;
  const path = place.value.path;
  return (
    <nav class="tabs" aria-label={text.projects.parts}>
      <To path={base} current={path === base}>{text.projects.overview}</To>
      {projectParts.map((p) => <To key={p} path={`${base}/${p}`} current={path === `${base}/${p}`}>{text.projects.part[p]}</To>)}
    </nav>
  );
}
