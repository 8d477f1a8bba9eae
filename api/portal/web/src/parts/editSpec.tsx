import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { ProblemError } from "../api/problem";
import { text } from "../text";
import { askAction } from "./ActionForm";

/** Edited is what an operator edits as JSON: a name and the settings. */
interface Edited {
  id?: string;
  name?: string;
  version?: number;
  spec?: object;
}

/**
 * askSpec shows the settings as JSON and sends what becomes of them. The version that was shown goes
 * with it, so that a change of another operator in between is not lost.
 */
function askSpec(title: string, of: Edited, send: (body: unknown, version: string) => Promise<unknown>, again: () => void): void {
  const { name, spec, version } = of;
  askAction({
    title: `${text.spec.edit}: ${title}`, button: text.spec.save, reason: "none", body: text.spec.help,
    fields: [{ name: "spec", label: text.spec.json, kind: "area", value: JSON.stringify({ name, spec }, null, 2), required: true, max: 200_000 }],
    send: async ({ values }) => {
      let body: unknown;
      try {
        body = JSON.parse(values["spec"] ?? "");
      } catch (error) {
        throw new ProblemError({ status: 400, title: text.spec.notJson, detail: error instanceof Error ? error.message : "" });
      }
      await send(body, `"${version ?? 0}"`);
      return text.spec.saved;
    },
    done: again,
  });
}

/** askSite edits a site. */
export function askSite(site: Schemas["Site"], again: () => void): void {
  askSpec(site.name ?? "", site, (body, version) => call(() => client.PUT("/api/v1/admin/maas-sites/{id}", {
    params: { path: { id: site.id ?? "" }, header: { "If-Match": version } }, body: body as Schemas["SiteRequest"],
  })), again);
}

/** askProfile edits a profile of a site. */
export function askProfile(profile: Schemas["Profile"], again: () => void): void {
  askSpec(profile.name ?? "", profile, (body, version) => call(() => client.PUT("/api/v1/admin/maas-sites/{id}/profiles/{profile_id}", {
    params: { path: { id: profile.site_id ?? "", profile_id: profile.id ?? "" }, header: { "If-Match": version } }, body: body as Schemas["ProfileRequest"],
  })), again);
}

/** askSku edits a SKU. */
export function askSku(sku: Schemas["SKU"], again: () => void): void {
  askSpec(sku.name ?? "", sku, (body, version) => call(() => client.PUT("/api/v1/admin/skus/{id}", {
    params: { path: { id: sku.id ?? "" }, header: { "If-Match": version } }, body: body as Schemas["SKURequest"],
  })), again);
}

/** askInstallWorkflow edits an install workflow. */
export function askInstallWorkflow(workflow: Schemas["InstallWorkflow"], again: () => void): void {
  askSpec(workflow.name ?? "", workflow, (body, version) => call(() => client.PUT("/api/v1/admin/install-workflows/{id}", {
    params: { path: { id: workflow.id ?? "" }, header: { "If-Match": version } }, body: body as Schemas["InstallWorkflowRequest"],
  })), again);
}
