import { text, words } from "../text";

type Tone = "ok" | "busy" | "warn" | "bad" | "quiet";

/** Symbols differ in shape, so that no state is told by colour alone. */
const symbols: Record<Tone, string> = { ok: "✓", busy: "▶", warn: "▲", bad: "✖", quiet: "○" };

const tones: Record<string, Tone> = {
  active: "ok", completed: "ok", reconciled: "ok", succeeded: "ok", success: "ok", adopted: "ok", clean: "ok", verified: "ok", already_done: "ok",
  running: "busy", compensating: "busy", removing: "busy", draining: "busy", enrolling: "busy", installing: "busy", in_progress: "busy",
  healthy: "ok", low_balance: "warn", depleted: "bad",
  provisioning: "busy", releasing: "busy", revoked: "ok", requested: "busy", release_failed: "bad", unconfirmed: "bad",
  deprovisioning: "busy", migrating: "busy", dispatched: "busy", run: "busy", wait: "busy",
  offline: "warn", failed_retryable: "warn", warning: "warn", uncertain: "warn", reprovision: "warn", unknown: "warn", needs_human: "warn",
  quarantined: "bad", failed_manual_intervention: "bad", failed: "bad", install_failed: "bad", critical: "bad", rejected: "bad", cannot: "bad",
  not_verified: "bad", failed_verification: "bad", dirty: "bad", unverified: "bad", expired: "bad",
};

/** Badge shows a state as a symbol and its name. */
export function Badge({ status, tone }: { status: string | undefined; tone?: Tone }) {
  if (!status) return <span class="quiet">{text.unknown}</span>;
  const shown = tone ?? tones[status] ?? "quiet";
  return (
    <span class={`badge badge--${shown}`} data-status={status}>
      <span aria-hidden="true">{symbols[shown]} </span>{words(status)}
    </span>
  );
}
