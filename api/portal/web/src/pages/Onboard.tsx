import { useRef, useState } from "preact/hooks";
import { call, client, newKey } from "../api/client";
import type { Schemas } from "../api/client";
import { asProblem, isFinal } from "../api/problem";
import type { Problem } from "../api/problem";
import { Heading, Section } from "../parts/Facts";
import { SelectField, TextField } from "../parts/Field";
import { useProfiles, useSites, useSkus } from "../parts/named";
import type { Named } from "../parts/named";
import { tell } from "../parts/notice";
import { PlanView } from "../parts/PlanView";
import { ProblemText } from "../parts/ProblemText";
import { hrefOf, navigate } from "../router";
import { text } from "../text";

type Request = Schemas["OnboardingRequest"];

const empty = { site_id: "", profile_id: "", sku_id: "", hostname: "", address: "", credential_ref: "", protocol: "", system_id: "" };
type Filled = typeof empty;

function toRequest(f: Filled): Request {
  return {
    site_id: f.site_id, profile_id: f.profile_id, sku_id: f.sku_id, hostname: f.hostname.trim(),
    bmc: {
      address: f.address.trim(), credential_ref: f.credential_ref.trim(), system_id: f.system_id.trim() || undefined,
      protocol: f.protocol === "redfish" || f.protocol === "ipmi" ? f.protocol : undefined,
    },
  };
}

/** Onboard plans the onboarding of a bare server, shows the plan, and starts the job. */
export function Onboard() {
  const [filled, setFilled] = useState<Filled>(empty);
  const [plan, setPlan] = useState<Schemas["Plan"]>();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const key = useRef(newKey());
  const turn = useRef(0);

  const set = (name: keyof Filled) => (event: { currentTarget: { value: string } }) => {
    const value = event.currentTarget.value;
    setFilled((f) => ({ ...f, [name]: value, ...(name === "site_id" ? { profile_id: "" } : {}) }));
    setPlan(undefined); // the plan was of another request
    setBusy(false);
    turn.current++;
    key.current = newKey();
  };
  async function run(step: () => Promise<void>): Promise<void> {
    if (busy) return;
    const now = ++turn.current;
    setBusy(true);
    setProblem(undefined);
    try {
      await step();
    } catch (error) {
      const refused = asProblem(error);
      if (isFinal(refused)) key.current = newKey();
      if (turn.current === now) setProblem(refused);
    } finally {
      if (turn.current === now) setBusy(false);
    }
  }
  const makePlan = () => run(async () => {
    const now = turn.current;
    const answer = await call(() => client.POST("/api/v1/admin/onboardings/plan", { body: toRequest(filled) }));
    if (turn.current === now) setPlan(answer);
  });
  const start = () => run(async () => {
    const job = await call(() => client.POST("/api/v1/admin/onboardings", { params: { header: { "Idempotency-Key": key.current } }, body: toRequest(filled) }));
    tell(`${text.action.started}: ${job.hostname ?? job.id ?? ""}`);
    navigate(hrefOf(`/jobs/${encodeURIComponent(job.id ?? "")}`));
  });
  return (
    <>
      <Heading title={text.onboard.title} />
      <form class="form" onSubmit={(e) => { e.preventDefault(); void makePlan(); }}>
        <p>{text.onboard.intro}</p>
        <Fields filled={filled} set={set} />
        <div class="buttons"><button type="submit" class={plan ? undefined : "primary"} aria-disabled={busy}>{busy && !plan ? text.loading : plan ? text.plan.again : text.plan.make}</button></div>
      </form>
      <ProblemText problem={problem} />
      {plan && (
        <Section title={text.plan.title}>
          <PlanView plan={plan} />
          <div class="buttons"><button type="button" class="primary" aria-disabled={busy} onClick={() => void start()}>{text.onboard.start}</button></div>
        </Section>
      )}
    </>
  );
}

function Fields({ filled, set }: { filled: Filled; set: (name: keyof Filled) => (event: { currentTarget: { value: string } }) => void }) {
  const sites = useSites();
  const skus = useSkus();
  const profiles = useProfiles(filled.site_id);
  const choose = (name: keyof Filled, label: string, all: Named[], help?: string) => (
    <SelectField label={label} help={help} name={name} required value={filled[name]} onChange={set(name)}>
      <option value="">{text.onboard.choose}</option>
      {all.map((n) => <option key={n.id} value={n.id}>{n.name}</option>)}
    </SelectField>
  );
  return (
    <>
      <div class="stack">
        {choose("site_id", text.onboard.site, sites, text.onboard.siteHelp)}
        {choose("profile_id", text.onboard.profile, profiles)}
        {choose("sku_id", text.onboard.sku, skus)}
        <TextField label={text.onboard.hostname} name="hostname" help={text.onboard.hostnameHelp} required maxLength={253} value={filled.hostname} onInput={set("hostname")} autoComplete="off" />
      </div>
      <fieldset class="stack">
        <legend>{text.onboard.bmc}</legend>
        <TextField label={text.onboard.address} name="address" help={text.onboard.addressHelp} required maxLength={300} value={filled.address} onInput={set("address")} autoComplete="off" />
        <TextField label={text.onboard.credential} name="credential_ref" help={text.onboard.credentialHelp} required maxLength={210} value={filled.credential_ref} onInput={set("credential_ref")} autoComplete="off" />
        <SelectField label={text.onboard.protocol} name="protocol" value={filled.protocol} onChange={set("protocol")}>
          <option value="">{text.onboard.protocolDefault}</option><option value="redfish">Redfish</option><option value="ipmi">IPMI</option>
        </SelectField>
        <TextField label={text.onboard.systemId} name="system_id" help={text.onboard.systemIdHelp} maxLength={200} value={filled.system_id} onInput={set("system_id")} autoComplete="off" />
      </fieldset>
    </>
  );
}
