import type { Schemas } from "../api/client";
import { text } from "../text";
import { Badge } from "./Badge";
import { Facts } from "./Facts";
import { Time } from "./Time";

/** ObservedFacts shows what was last seen of a machine outside Slipway, and how old that is. */
export function ObservedFacts({ observed, agentSeen, none }: { observed: Schemas["Observed"] | undefined; agentSeen?: string; none: string }) {
  if (!observed?.at && !agentSeen) return <p class="quiet">{none}</p>;
  const seen = (state: string | undefined, at: string | undefined) => (state || at ? <>{state && <Badge status={state} tone="quiet" />} <Time at={at} stale /></> : undefined);
  return (
    <Facts facts={[
      [text.job.maas, seen(observed?.maas, observed?.maas ? observed.at : undefined)],
      [text.job.power, seen(observed?.power, observed?.power ? observed.at : undefined)],
      [text.job.agent, seen(observed?.agent, agentSeen ?? (observed?.agent ? observed.at : undefined))],
    ]} />
  );
}
