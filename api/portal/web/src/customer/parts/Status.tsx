import { Badge } from "@mantine/core";

const colors: Record<string, string> = {
  active: "green", ok: "green", ready: "green", credited: "green", delivered: "green", enabled: "green", accepted: "green", released: "gray", expired: "gray",
  terminated: "gray", closed: "gray", failed: "red", release_failed: "red", dead: "red", error: "red", depleted: "red", node_lost: "red", failed_reconcile: "red",
  disabled: "orange", low: "orange", low_balance: "orange", degraded: "orange", maintenance_required: "orange",
};

/** words writes a name of the API, such as release_failed, as words. */
export const words = (name: string | undefined) => (name ?? "").replaceAll("_", " ");

/** Status shows a state. The text says it; the color only helps. */
export function Status({ of }: { of: string | undefined }) {
  if (!of) return null;
  return <Badge variant="light" color={colors[of] ?? "blue"} data-status={of} className="status">{words(of)}</Badge>;
}
