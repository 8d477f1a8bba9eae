// The texts of the pages of machines, plans, runs and instances. They are loaded with those pages.

export const automation = {
  refused: {
    invalid_argument: "The request is not valid", failed_precondition: "The state does not allow it", unauthenticated: "Not signed in",
    permission_denied: "Not allowed", not_found: "Not found", aborted: "It was ended", out_of_range: "The output cannot continue there",
    resource_exhausted: "Too many requests", internal: "Internal error", unavailable: "Not available now", deadline_exceeded: "No answer in time",
  } as Record<string, string>,
  failed: "The request failed",

  machine: {
    state: "Effective state", phase: "Phase", banners: "Banners", provider: "Provider", run: "Active run", cluster: "Cluster", customer: "Project",
    caption: "Machines, by their id", intro: "What automation manages by plans and runs. Machines are registered with slipway machine register.",
    none: "No machine is registered. slipway machine register registers one.", facts: "What is stated", ssh: "SSH", bmc: "BMC", macs: "MAC addresses", location: "Location", rack: "Rack", serial: "Serial", labels: "Labels",
    conditions: "Conditions", conditionsNone: "Nothing has been observed yet.", condition: "Condition", holds: "Holds", unknown: "not known now, last: ", since: "Since", reason: "Reason",
    runs: "Runs", runsNone: "No run was started on it.", banner: "Banner",
    bannerHelp: {
      NeedsIntervention: "An operator has to act. The page Attention and the job of the active run say what to do.",
      Degraded: "It works with a fault. The page Drift lists the critical findings of its node.",
    } as Record<string, string>,
    phaseNote: (phase: string) => `The phase is ${phase}; the effective state is computed from the active run, the phase and the conditions.`,
  },

  plan: {
    name: "Name", steps: "Steps", startable: "Who may start it", kind: "Kind", timeout: "Timeout of an attempt", retries: "Retries", parameters: "Parameters", byKind: "as its kind has it",
    caption: "Plans", intro: "A plan is a recipe that never changes: steps that run strictly in order. Administrators create one with slipway plan create.", idempotent: "may run again after an attempt whose outcome is not known",
  },

  run: {
    one: "Run", type: "Type", phase: "Phase", plan: "Plan", machine: "Machine", step: "Step", caption: "Runs, newest first", created: "Asked for", started: "Started", finished: "Ended", took: "Took",
    none: "No run was started. The page of a machine starts one.", retryOf: "Repeats", request: "Request", steps: "Steps", state: "State", retries: "Retries", message: "Message",
    start: "Start a run", startHelp: "The steps of the plan are carried out in order. One run is active on a machine; one that fails leaves it in MAINTENANCE.",
    planHelp: "Left empty, the default plan of the type", defaultPlan: "the default plan of the type", acceptRisk: "Interrupt work on the machine",
    acceptRiskHelp: "For a machine that is in its cluster and not drained, or of which that is not known. It needs a second sign-in, as REPAVE and RMA do.",
    begun: (id: string) => `Run ${id} has begun.`, cancel: "Cancel the run", cancelHelp: "It stops at the next safe point. A command that still runs is ended on the machine. The machine is in MAINTENANCE afterwards.",
    cancelled: (phase: string) => `The run is ${phase}.`, waits: "When a run waits for an operator, its job says what to do:", jobs: "jobs of runs",
  },

  log: {
    title: "Output", connecting: "Connecting", open: "Output arrives as it comes", paused: "Paused while this tab is hidden", retrying: "The stream broke; it continues in a moment", ended: "The run has ended; this is all of its output",
    none: "Nothing was written yet.", noneEnded: "Its steps wrote nothing.", broke: "The stream of output broke off.",
    part: (step: string, attempt: number, stream: string) => `${step}, attempt ${attempt}, ${stream}`,
    dropped: (run: string) => `Older output is not kept on this page. slipway run logs ${run} reads all of it.`,
    gone: "Some of the output was deleted for its age; this is what is left.", follow: "The newest line stays in view until you scroll up.",
  },

  instance: {
    one: "Instance", status: "State", progress: "Progress", project: "Project", provider: "Provider", zone: "Zone", type: "Type", model: "Model", error: "Error", created: "Made",
    caption: "Instances at cloud providers, newest first", none: "No instance was made.", archived: "Archived ones too", archivedOnly: "with archived ones",
    reached: (percent: number) => `It got to ${percent} %.`, failure: "Failure", code: "Error code", stage: "Failed stage", message: "Message", server: "Server at the provider", ip: "Address", image: "Image",
    hostKey: "SSH host key", heartbeat: "Last heartbeat", checksum: "Checksum of its agent", verified: "Agent verified", checked: "Last health check", deleted: "Deleted by the provider", job: "Job that makes it",
    ready: "Ready since", failed: "Failed", ended: "Terminated", history: "History", historyNone: "It has not moved.", from: "From", to: "To", why: "Reason", at: "At",
    log: "Action log", logNone: "Nothing was done for it yet.", action: "Action", attempt: "Try", took: "Took", detail: "Detail",
    terminate: "Terminate", terminateHelp: "Everything on the server is deleted, and what the provider bills for it ends. One that is ready drains first; terminating it again ends that wait.", terminating: "It ends.",
    make: "Make an instance", makeHelp: "A server is ordered at the provider. Whoever operates Slipway pays for it.", name: "Name", projectHelp: "Its id: prj_ and more", where: "Type and zone", modelHelp: "What vLLM serves, such as meta-llama/Llama-3.1-8B-Instruct",
    drain: "Seconds it drains at its end", made: (id: string) => `Instance ${id} is being made.`, noOffer: "No provider is configured: see the settings instance.*.",
  },
};
