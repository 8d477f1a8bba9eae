import { call, client } from "../api/client";
import type { Schemas } from "../api/client";
import { serverNow } from "../clock";
import { Loaded } from "../parts/Detail";
import { Heading } from "../parts/Facts";
import { useRead } from "../parts/read";
import { SpecForm } from "../parts/SpecForm";
import type { SpecField } from "../parts/SpecForm";
import { mustLeaveToStepUp, oidcHref } from "../session";
import { text } from "../text";
import type { PageProps } from ".";

const siteFields: SpecField[] = [
  { path: "name", required: true }, { path: "spec.maas_url", required: true }, { path: "spec.maas_api_key_ref", required: true },
  { path: "spec.bmc_networks" }, { path: "spec.node_networks" }, { path: "spec.trust_first_bmc_pin" }, { path: "spec.region" }, { path: "spec.zone" }, { path: "spec.pool" },
  { path: "spec.default_domain" }, { path: "spec.ssh_user" }, { path: "spec.ssh_key_ref" }, { path: "spec.maas_ca_pem", area: true }, { path: "spec.bmc_ca_pem", area: true },
];

const profileFields: SpecField[] = [
  { path: "name", required: true }, { path: "spec.distro_series" }, { path: "spec.hwe_kernel" }, { path: "spec.architecture" }, { path: "spec.storage_layout" },
  { path: "spec.boot_disk.model_contains" }, { path: "spec.power_type", options: ["redfish", "ipmi"] }, { path: "spec.agent_binary_url" }, { path: "spec.agent_binary_sha256" },
  { path: "spec.site_bootstrap_bundle_ref" }, { path: "spec.protect_serials" }, { path: "spec.batch_max_parallel" }, { path: "spec.max_deploy_retry_attempts" },
  { path: "spec.auto_claim_single_new_machine" }, { path: "spec.require_hw_sync" }, { path: "spec.enable_phase2_roce" }, { path: "spec.scrub_allow_overwrite" },
];

const skuFields: SpecField[] = [
  { path: "name", required: true }, { path: "spec.gpus" }, { path: "spec.gpu_model_contains" }, { path: "spec.gpu_memory_mib" }, { path: "spec.driver_min_version" },
  { path: "spec.nics_up" }, { path: "spec.data_disks" }, { path: "spec.min_memory_mib" }, { path: "spec.require_ecc" }, { path: "spec.max_uncorrected_ecc" }, { path: "spec.protect_serials" },
];

const installFields: SpecField[] = [
  { path: "name", required: true }, { path: "spec.kernel.url", required: true }, { path: "spec.kernel.sha256" }, { path: "spec.initrds.0.url" }, { path: "spec.initrds.0.sha256" },
  { path: "spec.command_line", area: true }, { path: "spec.user_data", area: true }, { path: "spec.deadline_minutes" }, { path: "spec.agent.binary_url" }, { path: "spec.agent.binary_sha256" },
];

const ifMatch = (of: { version?: number }) => `"${of.version ?? 0}"`;
const pathTo = (...parts: (string | undefined)[]) => parts.map((p) => "/" + encodeURIComponent(p ?? "")).join("");

/** NewSite asks for a site. */
export function NewSite() {
  return (
    <>
      <Heading title={text.sites.create} />
      <SpecForm request="SiteRequest" fields={siteFields} of={{}} button={text.spec.create} back="/sites" send={async (body, key) => {
        const site = await call(() => client.POST("/api/v1/admin/maas-sites", { params: { header: { "Idempotency-Key": key } }, body: body as Schemas["SiteRequest"] }));
        return pathTo("sites", site.id);
      }} />
    </>
  );
}

/** EditSite edits a site. The version that is shown goes with the change, so that none is lost. */
export function EditSite({ params }: PageProps) {
  const id = params["id"] ?? "";
  const back = pathTo("sites", id);
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/maas-sites/{id}", { params: { path: { id } } })));
  return (
    <Loaded read={read} title={text.spec.edit}>
      {(site) => (
        <>
          <Heading title={`${text.spec.edit}: ${site.name ?? id}`} />
          <StepUpFirst />
          <SpecForm request="SiteRequest" fields={siteFields} of={site} button={text.spec.save} back={back} send={async (body) => {
            await call(() => client.PUT("/api/v1/admin/maas-sites/{id}", { params: { path: { id }, header: { "If-Match": ifMatch(site) } }, body: body as Schemas["SiteRequest"] }));
            return back;
          }} />
        </>
      )}
    </Loaded>
  );
}

/** NewProfile asks for a profile of a site. */
export function NewProfile({ params }: PageProps) {
  const id = params["id"] ?? "";
  return (
    <>
      <Heading title={text.sites.createProfile} />
      <SpecForm request="ProfileRequest" fields={profileFields} of={{}} button={text.spec.create} back={pathTo("sites", id)} send={async (body, key) => {
        const profile = await call(() => client.POST("/api/v1/admin/maas-sites/{id}/profiles", {
          params: { path: { id }, header: { "Idempotency-Key": key } }, body: body as Schemas["ProfileRequest"],
        }));
        return pathTo("sites", id, "profiles", profile.id);
      }} />
    </>
  );
}

/** EditProfile edits a profile of a site. */
export function EditProfile({ params }: PageProps) {
  const id = params["id"] ?? "";
  const profile_id = params["profile"] ?? "";
  const back = pathTo("sites", id, "profiles", profile_id);
  const read = useRead(back, () => call(() => client.GET("/api/v1/admin/maas-sites/{id}/profiles/{profile_id}", { params: { path: { id, profile_id } } })));
  return (
    <Loaded read={read} title={text.spec.edit}>
      {(profile) => (
        <>
          <Heading title={`${text.spec.edit}: ${profile.name ?? profile_id}`} />
          <SpecForm request="ProfileRequest" fields={profileFields} of={profile} button={text.spec.save} back={back} send={async (body) => {
            await call(() => client.PUT("/api/v1/admin/maas-sites/{id}/profiles/{profile_id}", {
              params: { path: { id, profile_id }, header: { "If-Match": ifMatch(profile) } }, body: body as Schemas["ProfileRequest"],
            }));
            return back;
          }} />
        </>
      )}
    </Loaded>
  );
}

/** NewSku asks for a SKU. */
export function NewSku() {
  return (
    <>
      <Heading title={text.skus.create} />
      <SpecForm request="SKURequest" fields={skuFields} of={{}} button={text.spec.create} back="/skus" send={async (body, key) => {
        const sku = await call(() => client.POST("/api/v1/admin/skus", { params: { header: { "Idempotency-Key": key } }, body: body as Schemas["SKURequest"] }));
        return pathTo("skus", sku.id);
      }} />
    </>
  );
}

/** EditSku edits a SKU. */
export function EditSku({ params }: PageProps) {
  const id = params["id"] ?? "";
  const back = pathTo("skus", id);
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/skus/{id}", { params: { path: { id } } })));
  return (
    <Loaded read={read} title={text.spec.edit}>
      {(sku) => (
        <>
          <Heading title={`${text.spec.edit}: ${sku.name ?? id}`} />
          <SpecForm request="SKURequest" fields={skuFields} of={sku} button={text.spec.save} back={back} send={async (body) => {
            await call(() => client.PUT("/api/v1/admin/skus/{id}", { params: { path: { id }, header: { "If-Match": ifMatch(sku) } }, body: body as Schemas["SKURequest"] }));
            return back;
          }} />
        </>
      )}
    </Loaded>
  );
}

/** StepUpFirst offers the second sign-in before a form is filled in, where it leaves the page. */
function StepUpFirst() {
  if (!mustLeaveToStepUp(serverNow())) return null;
  return <div class="warnings form"><p>{text.spec.stepUpFirst}</p><p><a class="button" href={oidcHref("step-up")}>{text.session.stepUpGo}</a></p></div>;
}

/** NewInstallWorkflow asks for an install workflow. */
export function NewInstallWorkflow() {
  return (
    <>
      <Heading title={text.installs.create} />
      <StepUpFirst />
      <SpecForm request="InstallWorkflowRequest" fields={installFields} of={{}} button={text.spec.create} back="/install-workflows" send={async (body, key) => {
        const workflow = await call(() => client.POST("/api/v1/admin/install-workflows", {
          params: { header: { "Idempotency-Key": key } }, body: body as Schemas["InstallWorkflowRequest"],
        }));
        return pathTo("install-workflows", workflow.id);
      }} />
    </>
  );
}

/** EditInstallWorkflow edits an install workflow. */
export function EditInstallWorkflow({ params }: PageProps) {
  const id = params["id"] ?? "";
  const back = pathTo("install-workflows", id);
  const read = useRead(id, () => call(() => client.GET("/api/v1/admin/install-workflows/{id}", { params: { path: { id } } })));
  return (
    <Loaded read={read} title={text.spec.edit}>
      {(workflow) => (
        <>
          <Heading title={`${text.spec.edit}: ${workflow.name ?? id}`} />
          <StepUpFirst />
          <SpecForm request="InstallWorkflowRequest" fields={installFields} of={workflow} button={text.spec.save} back={back} send={async (body) => {
            await call(() => client.PUT("/api/v1/admin/install-workflows/{id}", {
              params: { path: { id }, header: { "If-Match": ifMatch(workflow) } }, body: body as Schemas["InstallWorkflowRequest"],
            }));
            return back;
          }} />
        </>
      )}
    </Loaded>
  );
}
