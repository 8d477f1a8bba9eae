import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { useLive } from "../live";
import { askAction } from "../parts/ActionForm";
import { askDelete } from "../parts/askDelete";
import { Loaded } from "../parts/Detail";
import { Facts, Heading, Section } from "../parts/Facts";
import { To } from "../parts/Link";
import { FilterForm, ListTable, useList } from "../parts/list";
import { PagedTable } from "../parts/paged";
import { useRead } from "../parts/read";
import { Spec } from "../parts/Spec";
import type { Column } from "../parts/Table";
import { Time } from "../parts/Time";
import { place } from "../router";
import { hasRole } from "../session";
import { text } from "../text";
import type { PageProps } from ".";

type Site = Schemas["Site"];

const sitePath = (id: string | undefined) => `/sites/${encodeURIComponent(id ?? "")}`;

const columns: Column<Site>[] = [
  { label: text.sites.name, header: true, cell: (s) => <><To path={sitePath(s.id)} row>{s.name}</To>{s.spec?.simulated && <span class="quiet"> {text.nodes.simulated}</span>}</> },
  { label: text.sites.region, cell: (s) => s.spec?.region ?? "" },
  { label: text.sites.zone, cell: (s) => s.spec?.zone ?? "" },
  { label: text.sites.maas, cell: (s) => s.spec?.maas_url ?? "" },
  { label: text.sites.changed, cell: (s) => <Time at={s.updated_at} /> },
];

/** Sites lists the MAAS sites. */
export function Sites() {
  const name = place.value.query.get("name") ?? undefined;
  const list = useList<Site>({
    read: (cursor) => call(() => client.GET("/api/v1/admin/maas-sites", { params: { query: { limit: 50, cursor: cursor || undefined, name } } })),
    idOf: (s) => s.id ?? "", kinds: ["site"],
  });
  return (
    <>
      <Heading title={text.sites.title}>{hasRole("admin") && <div class="buttons"><To path="/sites/new" class="button primary">{text.sites.create}</To></div>}</Heading>
      <FilterForm fields={[{ name: "name", label: text.sites.name }]} />
      <ListTable list={list} caption={text.sites.title} columns={columns} empty={text.sites.none} />
    </>
  );
}

/** SitePage shows one site with its profiles and RoCE assignments. */
export function SitePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/maas-sites/{id}", { params: { path: { id } } })));
  useLive([id], read.again);
  const remove = (site: Site) => askDelete({
    name: site.name ?? id, help: text.spec.deleteHelp, back: "/sites",
    send: () => call(() => client.DELETE("/api/v1/admin/maas-sites/{id}", { params: { path: { id }, header: { "If-Match": `"${site.version ?? 0}"` } } })),
  });
  return (
    <Loaded read={read} title={id}>
      {(site) => (
        <>
          <Heading title={site.name || id}>
            <span class="quiet">{text.time.readAt} <Time at={read.at} stale /></span>
            <div class="buttons">
              {hasRole("operator") && <button type="button" onClick={() => askProbe(site)}>{text.sites.probe}</button>}
              {hasRole("admin") && <To path={`${sitePath(id)}/edit`} class="button">{text.spec.edit}</To>}
              {hasRole("admin") && <button type="button" class="danger" onClick={() => remove(site)}>{text.projects.delete}</button>}
            </div>
          </Heading>
          <Facts facts={[[text.node.id, <code>{site.id}</code>], [text.sites.changed, <Time at={site.updated_at} />], [text.nodes.title, <To path="/nodes" query={{ site_id: id }}>{text.sites.nodes}</To>]]} />
          <Section title={text.spec.title}><Spec spec={site.spec} /></Section>
          <Section title={text.sites.profiles} side={hasRole("admin") && <To path={`${sitePath(id)}/profiles/new`}>{text.sites.createProfile}</To>}><Profiles id={id} /></Section>
          <Section title={text.sites.roce}><Assignments id={id} /></Section>
        </>
      )}
    </Loaded>
  );
}

/** askProbe asks MAAS what it is and what the key may do. It changes nothing. */
function askProbe(site: Site): void {
  askAction({
    title: `${text.sites.probe}: ${site.name ?? ""}`, button: text.sites.probe, body: text.sites.probeHelp, reason: "none",
    send: async () => {
      const answer = await call(() => client.POST("/api/v1/admin/maas-sites/{id}/probe", { params: { path: { id: site.id ?? "" } } }));
      return <>{text.sites.probed}<Spec spec={answer.result as object} /></>;
    },
  });
}

function Profiles({ id }: { id: string }) {
  return (
    <PagedTable<Schemas["Profile"]> name={id} caption={text.sites.profiles} watch={[id]} empty={text.sites.noProfile} keyOf={(p) => p.id ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/admin/maas-sites/{id}/profiles", { params: { path: { id }, query: { limit: 50, cursor: cursor || undefined } } }))}
      columns={[
        { label: text.sites.name, header: true, cell: (p) => <To path={`${sitePath(id)}/profiles/${encodeURIComponent(p.id ?? "")}`} row>{p.name}</To> },
        { label: text.sites.series, cell: (p) => p.spec?.distro_series ?? "" },
        { label: text.sites.architecture, cell: (p) => p.spec?.architecture ?? "" },
        { label: text.sites.layout, cell: (p) => p.spec?.storage_layout ?? "" },
        { label: text.sites.changed, cell: (p) => <Time at={p.updated_at} /> },
      ]} />
  );
}

function Assignments({ id }: { id: string }) {
  return (
    <PagedTable<Schemas["RoCE"]> name={id} caption={text.sites.roce} watch={[id]} empty={text.sites.noRoce} keyOf={(r) => r.hostname ?? ""}
      read={(cursor) => call(() => client.GET("/api/v1/admin/maas-sites/{id}/roce-assignments", { params: { path: { id }, query: { limit: 50, cursor: cursor || undefined } } }))}
      columns={[
        { label: text.nodes.hostname, header: true, cell: (r) => r.hostname ?? "" },
        { label: text.sites.ports, cell: (r) => <ul class="lines">{(r.ports ?? []).map((p, i) => <li key={i}>{[p.interface, p.ip, p.subnet_cidr, p.mtu && `MTU ${p.mtu}`].filter(Boolean).join(" · ")}</li>)}</ul> },
      ]} />
  );
}

/** ProfilePage shows one profile: how machines of a site are installed. */
export function ProfilePage({ params }: PageProps) {
  const id = params["id"] ?? "";
  const profile_id = params["profile"] ?? "";
  const read = useRead(`${id} ${profile_id}`, () => call(() => client.GET("/api/v1/admin/maas-sites/{id}/profiles/{profile_id}", { params: { path: { id, profile_id } } })));
  useLive([profile_id], read.again);
  const remove = (profile: Schemas["Profile"]) => askDelete({
    name: profile.name ?? profile_id, help: text.spec.deleteHelp, back: sitePath(id),
    send: () => call(() => client.DELETE("/api/v1/admin/maas-sites/{id}/profiles/{profile_id}", {
      params: { path: { id, profile_id }, header: { "If-Match": `"${profile.version ?? 0}"` } },
    })),
  });
  return (
    <Loaded read={read} title={profile_id}>
      {(profile) => (
        <>
          <Heading title={`${text.sites.profile}: ${profile.name ?? profile_id}`}>
            {hasRole("admin") && (
              <div class="buttons">
                <To path={`${sitePath(id)}/profiles/${encodeURIComponent(profile_id)}/edit`} class="button">{text.spec.edit}</To>
                <button type="button" class="danger" onClick={() => remove(profile)}>{text.projects.delete}</button>
              </div>
            )}
          </Heading>
          <Facts facts={[[text.node.id, <code>{profile.id}</code>], [text.nodes.site, <To path={sitePath(id)}>{id}</To>], [text.sites.changed, <Time at={profile.updated_at} />]]} />
          <Section title={text.spec.title}><Spec spec={profile.spec} /></Section>
        </>
      )}
    </Loaded>
  );
}
