import type { Schemas } from "../api/client";
import { duration } from "../clock";
import { text } from "../text";
import { Facts } from "./Facts";

/** Eta shows when a job will end, by what past jobs took. */
export function Eta({ eta }: { eta: Schemas["Estimate"] | undefined }) {
  if (!eta) return null;
  return (
    <>
      <Facts facts={[
        [text.job.etaP50, eta.p50_seconds !== undefined && duration(eta.p50_seconds)],
        [text.job.etaP90, eta.p90_seconds !== undefined && <>{duration(eta.p90_seconds)} <span class="quiet">{text.job.etaSamples(eta.samples ?? 0)}</span></>],
        [text.job.eta, eta.overdue ? text.job.overdue : eta.reason],
      ]} />
      {eta.p50_seconds !== undefined && <p class="quiet">{text.job.etaNote}</p>}
    </>
  );
}
