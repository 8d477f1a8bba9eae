import type { Schemas } from "../api/client";
import { text } from "../text";
import { billing } from "../textBilling";
import { Badge } from "./Badge";
import { Facts } from "./Facts";
import { To } from "./Link";
import { money } from "./money";
import { Time } from "./Time";

/** BalanceFacts shows a balance with its state and thresholds. */
export function BalanceFacts({ balance: b }: { balance: Schemas["Balance"] }) {
  const amount = (minor: number | undefined) => money(minor, b.exponent, b.currency);
  return (
    <>
      {!b.charging && <p class="warnings"><span aria-hidden="true">▲ </span>{billing.uncharged}</p>}
      <Facts facts={[
        [billing.state, <Badge status={b.state} />],
        [billing.since, <Time at={b.since} />],
        [billing.posted, amount(b.balance_minor)],
        [billing.held, amount(b.held_minor)],
        [billing.available, amount(b.available_minor)],
        [billing.low, amount(b.thresholds?.low_minor)],
        [billing.depleted, amount(b.thresholds?.depleted_minor)],
        [billing.rearm, amount(b.thresholds?.rearm_minor)],
        [billing.grace, b.grace_seconds],
        [billing.released, b.grace_ends_at && <Time at={b.grace_ends_at} />],
        [text.accounts.one, <To path={`/billing-accounts/${encodeURIComponent(b.billing_account_id ?? "")}`}>{b.billing_account_id}</To>],
      ]} />
      <p class="quiet">{billing.heldHelp}</p>
    </>
  );
}
