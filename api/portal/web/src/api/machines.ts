// The messages of the gRPC API that the portal reads, in the form of its JSON: the names of the fields are
// those of proto/slipway/v1, which a Go test compares. 64-bit numbers are texts.

export interface Condition {
  type: string;
  status: boolean;
  reason: string;
  last_transition: string;
}

export interface MachineStatus {
  phase: string;
  conditions: Condition[];
  active_run_id: string;
  effective_state: string;
  banners: string[];
}

export interface MachineSpec {
  ssh_endpoint: string;
  bmc_endpoint: string;
  target_cluster_ref: string;
  mac_addresses: string[];
  provider: string;
  location: string;
  rack: string;
  serial: string;
}

export interface Machine {
  machine_id: string;
  labels: Record<string, string>;
  spec: MachineSpec;
  status: MachineStatus;
  customer_id: string;
}

export interface ListMachinesResponse {
  machines: Machine[];
  next_page_token: string;
}

/** Step has one of the kinds, with its parameters. */
export interface Step {
  name: string;
  timeout_seconds?: number;
  max_retries?: number;
  ssh?: SshCommand;
  reboot?: object;
  netboot?: object;
  repave?: object;
  join?: object;
  verify?: object;
  net?: object;
  rma?: object;
}

export interface SshCommand {
  command: string;
  idempotent: boolean;
}

export interface Plan {
  plan_id: string;
  display_name: string;
  steps: Step[];
  startable_by: string;
}

export interface ListPlansResponse {
  plans: Plan[];
  next_page_token: string;
}

export interface StepStatus {
  name: string;
  state: string;
  retry_count: number;
  started_at?: string;
  finished_at?: string;
  message: string;
}

export interface Run {
  run_id: string;
  machine_id: string;
  request_id: string;
  type: string;
  plan_id: string;
  phase: string;
  steps: StepStatus[];
  current_step: string;
  created_at: string;
  started_at?: string;
  finished_at?: string;
  retry_of: string;
}

export interface ListRunsResponse {
  runs: Run[];
  next_page_token: string;
}

export interface LogChunk {
  ts: string;
  run_id: string;
  stream: string;
  data: string;
  seq: string;
  step: string;
  attempt: number;
}

/** kindOf returns the kind of a step, "" for one that this portal does not know. */
export function kindOf(step: Step): string {
  return (["ssh", "reboot", "netboot", "repave", "join", "verify", "net", "rma"] as const).find((k) => step[k]) ?? "";
}

/** filterOf joins the terms of a filter that have a value. */
export function filterOf(terms: [string, string | null | undefined][]): string {
  return terms.filter(([, value]) => value).map(([name, value]) => `${name}="${(value ?? "").replace(/["\\]/g, "\\$&")}"`).join(" AND ");
}

/** machinePhases are the states of a machine, and runPhases and runTypes those of a run. */
export const machinePhases = ["FACTORY_READY", "READY", "PROVISIONING", "IN_SERVICE", "MAINTENANCE", "RMA", "RETIRED"];
export const runPhases = ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"];
export const runTypes = ["UPGRADE", "REBOOT", "NET_RECONFIG", "REPAVE", "RMA"];

/** isActive says whether a run has not ended. */
export function isActive(run: Run): boolean {
  return run.phase === "PENDING" || run.phase === "RUNNING";
}
