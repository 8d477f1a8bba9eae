// All texts of the portal. What the API says in words (next_step, message, warnings) is shown as it is.

export const text = {
  product: "Slipway",
  skip: "Skip to the content",
  loading: "Loading",
  none: "none",
  unknown: "unknown",
  yes: "yes",
  no: "no",
  close: "Close",
  cancel: "Cancel",
  openMenu: "Menu",
  navigation: "Main",
  dismiss: "Dismiss",
  newTab: "opens in a new tab",
  badLink: "this address is not a link that the portal opens",
  notFound: { title: "Page not found", detail: "The portal has no page at this address. Choose one in the menu." },
  keys: "Keys: j and k move between the rows of a table.",

  problem: {
    unknown: "The request failed",
    unknownDetail: (status: number) => `The server answered with status ${status} and no explanation. Try again; if it happens again, read the server's log.`,
    noAnswer: "The server does not answer",
    noAnswerDetail: "Check the network between this browser and Slipway, then try again.",
    inPortal: "The portal has a fault",
    notLoaded: "This page of the portal did not load",
    notLoadedDetail: "The server may have been updated since this tab was opened, or it does not answer. Load the page again.",
    requestId: "Request id",
    allowed: "Allowed now",
    retryAfter: (seconds: number) => `Try again in ${seconds} s.`,
    existing: "In the way",
    again: "Try again",
  },

  live: {
    connecting: "Connecting",
    open: "Live",
    closed: "Changes do not arrive; reconnecting",
    "signed-out": "Changes do not arrive; sign in again",
  },

  time: {
    never: "never",
    now: "just now",
    stale: "stale",
    staleTitle: "older than 5 minutes",
    ago: (amount: string) => `${amount} ago`,
    ahead: (amount: string) => `in ${amount}`,
    readAt: "Read",
  },

  list: {
    previous: "Previous page",
    next: "Next page",
    page: (n: number) => `Page ${n}`,
    rows: (n: number) => (n === 1 ? "1 row" : `${n} rows`),
    empty: "Nothing matches.",
    gone: "no longer in this list",
    changed: "The list may have changed.",
    reload: "Reload",
    apply: "Apply filters",
    reset: "Reset filters",
    filters: "Filters",
    any: "any",
    pages: "Pages",
  },

  session: {
    title: "Sign in to Slipway",
    oidc: "Sign in with your organisation",
    or: "or",
    token: "API token",
    tokenHelp: "It begins with slp_. An administrator creates one with slipway token create.",
    signIn: "Sign in",
    signOut: "Sign out",
    signedInAs: "Signed in as",
    roles: "Roles",
    noWay: "This server offers no way to sign in to the portal. Configure OIDC or API tokens.",
    stepUpTitle: "Confirm that it is you",
    stepUpToken: "This cannot be undone. Enter your API token again; it then counts for ten minutes.",
    stepUpOidc: "This cannot be undone. Sign in again with your organisation; it then counts for ten minutes. You come back to this page and must give the command again.",
    stepUp: "Confirm",
    stepUpGo: "Sign in again",
  },

  action: {
    reason: "Reason",
    reasonRequired: "Reason (required)",
    reasonHelp: "It is kept in the history and in the audit log.",
    confirmName: (name: string) => `Type ${name} to confirm`,
    confirmWrong: (name: string) => `Type ${name} exactly as it is written.`,
    warnings: "Before you go on",
    sent: "Done.",
    started: "Started job",
    sending: "Sending",
    none: "No action is allowed now.",
    title: "Actions",
  },

  /** What an action does; docs/states/actions.md and docs/states/node_actions.md say it in full. */
  actionMeaning: {
    retry_stage: "Run the failed stage again.",
    resume: "Continue from the last safe stage. The workflow is started again if it was lost.",
    rerun: "Begin at the first stage. Each stage looks first and is skipped if its work is done.",
    restart_clean: "Undo everything that was done, then begin at the first stage.",
    cancel: "Stop at the next safe point and undo where that is possible.",
    adopt_observed_state: "Accept the state that was observed outside, and go on from it.",
    mark_manual_intervention_required: "Stop the job until an operator releases it.",
    drain: "Take no new work, wait for the allocation to end, then retire the node.",
    retire: "Retire the node without waiting: a live allocation is ended by force.",
    reactivate: "Use the retired node again. Health must prove it active.",
    quarantine: "Keep the node from scheduling.",
    unquarantine: "Put the node back to use. Its agent and a fresh report must prove it healthy.",
    remove: "Uninstall the agent and delete the node's record, for good.",
    soft_reset: "Clean the node and give it back to service. The installed system stays.",
    reimage: "Clean the node, erase its disks, deploy it again, and give it back to service.",
    full_decommission: "Take the node out for good: clean, release, power off, and remove it from Slipway and MAAS.",
    storage_cleanup: "Remove what tenants left in storage, prove it, and give the node back to service.",
  } as Record<string, string>,
  nodeResume: "Make sure that a node which is draining or being removed has a job that goes on.",

  nodes: {
    title: "Inventory",
    caption: "Nodes",
    search: "Search",
    searchHelp: "Part of a hostname or serial, or a whole id, MAAS system id or MAC",
    site: "Site",
    sku: "SKU",
    status: "Status",
    lifecycle: "Lifecycle",
    hostname: "Hostname",
    since: "In this state since",
    simulated: "simulated",
    coarse: "Coarse states",
    every: "Every state",
    onboard: "Onboard a node",
    serial: "Serial",
    counts: "Nodes by status", total: (all: number, silent: number) => `${all} nodes in all; ${silent} without a heartbeat in the last 5 minutes`,
  },

  node: {
    facts: "Facts",
    id: "Id", serial: "Serial", uuid: "Hardware UUID", macs: "MAC addresses", ips: "IP addresses", site: "Site",
    profile: "Profile", sku: "SKU", maas: "MAAS machine", bmc: "BMC", labels: "Labels", lifecycle: "Lifecycle",
    changed: "In this state since", updated: "Last change", job: "Live job", allocation: "Allocation",
    tenantLeft: "A tenant left and nothing proves the node clean since",
    observed: "Last observed",
    agent: "Agent", agentVersion: "Agent version", heartbeat: "Last heartbeat", reported: "Health report",
    unhealthy: "The report does not meet the SKU", healthy: "The report meets the SKU",
    noJobObserved: "No job has observed MAAS or the power state of this node.",
    noAgent: "No agent has enrolled.",
    drives: "Drives", drivesExpected: "Expected drives", drivesReported: "Reported drives", drivesSource: "Named by",
    drivesDiffer: "The reported drives differ from the expected ones.",
    drivesNone: "Nothing names drives of this node.",
    acceptDrives: "Accept the reported drives",
    acceptDrivesHelp: "From then on a job erases these drives, except protected ones. Compare them with the machine first.",
    model: "Model", size: "Size", protected: "protected", expectedToo: "Expected",
    certificates: "Certificates", certificatesNone: "The node has no certificate.",
    verdict: "Verdict", issued: "Issued", mode: "Mode", devices: "Devices", failures: "Not verified", sequence: "Number",
    chain: "The list is what the server holds. slipway certificate verify checks signatures and the chain offline.",
    timeline: "Timeline", timelineNone: "Nothing has happened yet.",
    what: "What", who: "By", when: "When", detail: "Detail",
    jobs: "Jobs of this node",
    decommission: "Decommission",
    needs: "It needs",
    gpus: "GPUs", driver: "Driver", memory: "Memory", cpus: "CPUs", bootId: "Boot id",
    graceLabel: "Seconds that what runs may take to end",
    verified: "verified", state: "State",
  },

  jobs: {
    title: "Jobs", caption: "Jobs, newest first", kind: "Kind", status: "Job state", stage: "Stage",
    progress: "Progress", node: "Node", created: "Created", needsHuman: "Requires operator action",
    job: "Job", changed: "Last change",
  },

  job: {
    title: (kind: string) => `Job: ${kind}`,
    stage: "Current stage", attempt: "Tries of this stage", mode: "Mode", node: "Node",
    createdBy: "Created by", deadline: "Stage deadline", started: "Started", finished: "Finished",
    progress: "Progress", reached: "Reached", failedStage: "Failed stage",
    eta: "Estimate", etaP50: "Half of such jobs end within", etaP90: "Nine of ten end within",
    etaSamples: (n: number) => `from ${n} comparable jobs`, overdue: "The stage takes longer than in nine of ten comparable jobs.",
    etaNote: "Working time from now to the end, without the time that the job waits for an operator.",
    failure: "Failure", failureClass: "Failure class", runbook: "Runbook", message: "Message",
    next: "Recommended next action", noNext: "No action is needed.",
    observed: "Last observed", maas: "MAAS", power: "Power", agent: "Agent", observedNone: "Nothing has been observed yet.",
    stages: "Stages", attempts: "Tries", outcome: "Outcome", duration: "Duration", try: "Try", tries: "Every try, newest first",
    temporal: "Open in the Temporal Web UI", temporalNone: "Temporal workflow",
    acceptRisk: "I accept the risk: the observed state was compared with the machine",
    dryRun: "What the job would do now", dryRunGo: "Show", batch: "Batch",
    frozen: "An operator has stopped the job.", waiting: "The stage waits on something outside Slipway.",
    lost: "No workflow runs for the job; an action starts one.",
    detail: "Detail",
  },

  plan: {
    title: "Plan", hash: "Plan hash", summary: "Summary", stage: "Stage", would: "Would", why: "Why", steps: "Steps",
    seen: "Seen", fails: "It would fail", drives: "Drives that the job expects", protectedDrives: "Protected drives",
    make: "Make the plan", again: "Make the plan again",
    needsHuman: "The job would park.", made: "Made",
  },

  attention: {
    title: "Attention", caption: "What requires operator action, oldest first", kind: "What", message: "What is wrong",
    next: "What to do", since: "Since", all: "every kind", none: "Nothing requires operator action.", resource: "Where",
    runbook: "Runbook",
  },

  onboard: {
    title: "Onboard a node", site: "Site", profile: "Profile", sku: "SKU", hostname: "Hostname",
    hostnameHelp: "One DNS label in lower case",
    bmc: "BMC", address: "Address", addressHelp: "host, host:port or https://host:port; no login, no path",
    credential: "Login", credentialHelp: "The name of a stored secret, such as bmc/rack-1, or name@version",
    protocol: "Protocol", protocolDefault: "as the profile says", systemId: "System", systemIdHelp: "Only where the BMC has several systems",
    intro: "Make the plan first. Nothing is changed until you start the job.",
    start: "Start the onboarding", choose: "choose",
  },

  decommission: {
    title: "Decommission", mode: "Mode", grace: "Seconds that what runs may take to end",
    intro: "Make the plan first. Nothing is changed until you confirm the plan.",
    start: "Start the decommission", notAllowed: "No decommission may be started now.",
    confirm: (mode: string) => `Start ${mode}`,
    confirmBody: "The job starts only if the plan still holds.",
  },

  drift: {
    title: "Drift", caption: "Findings, newest first", detector: "Detector", severity: "Severity", status: "Status",
    message: "Finding", seen: "Last seen", first: "First seen", where: "Where", evidence: "Evidence", next: "What to do",
    count: "Passes that saw it", outcome: "Outcome", acted: "Last action", adopts: "Adopt does",
    passes: "Last pass over each site", passSite: "Site", passFinished: "Finished", passProblem: "Problem", late: "late",
    all: "every status",
    meaning: {
      adopt: "Record what was observed, and close the finding.",
      quarantine: "Take the node out of scheduling. The finding stays until its fault is gone.",
      ignore: "Keep the finding quiet until its evidence changes.",
    } as Record<string, string>,
  },

  batches: {
    title: "Batches", caption: "Onboarding batches, newest first", name: "Name", site: "Site", total: "Servers", counts: "By status",
    created: "Created", by: "Created by", items: "Servers of the batch", parallel: "At a time", error: "Rejected because",
    itemsNone: "The batch has no servers.",
  },

  spec: {
    title: "Settings", edit: "Edit", save: "Save", saved: "Saved.", json: "Name and settings as JSON",
    help: "The API reference names all settings. The server checks them before anything is stored.", notJson: "This is not JSON",
  },

  secret: {
    label: "Value", help: "It is shown this once. Copy it now.", done: "I have copied it",
    replayed: "The server has answered this request before and gives the value out once. Revoke what was made, and make it again.",
  },

  sites: {
    title: "Sites", name: "Name", region: "Region", zone: "Zone", maas: "MAAS", changed: "Last change", probe: "Probe MAAS",
    probeHelp: "Ask MAAS for its version, the user's rights, SSH keys, settings and images. It changes nothing.", probed: "MAAS answered.",
    profiles: "Profiles", profile: "Profile", roce: "RoCE assignments", ports: "Ports", series: "Release", architecture: "Architecture", layout: "Storage layout",
    nodes: "Nodes of this site",
  },

  skus: { title: "SKUs", dataDisks: "Data disks", nodes: "Nodes of this SKU", requires: "A node must have" },

  installs: { title: "Install workflows", one: "Install workflow", kernel: "Kernel", deadline: "Minutes it may take", nodes: "PXE nodes" },

  pxe: {
    title: "Network installation", progress: "Installed", failedAttempts: "Failed attempts", lastError: "Last error", deadline: "Fails when silent until",
    workflow: "Install workflow", erase: "Erased from", seen: "Last seen", reported: "What the machine says of itself (not proven)",
    netboot: "A job has it boot", planned: "Planned hardware",
  },

  bmcs: {
    title: "BMCs", address: "Address", protocol: "Protocol", vendor: "Vendor", trouble: "State", blocked: "login blocked", blockedSince: "No login is tried since",
    pinWaits: "Pin that waits for approval", rotation: "rotation", rotated: "Login rotated", cipher: "IPMI cipher suite", credential: "Login", candidate: "Login it is rotated to",
    previous: "Login before", pin: "Approved pin (SHA-256)", rotations: "Rotations of the login", rotationsNone: "The login was never rotated.",
    approve: "Approve the pin", approveHelp: "From then on Slipway trusts this certificate and sends it the login. Compare the pin with what the BMC itself shows.",
    clear: "Allow logins again", clearHelp: "Correct the login first: the BMC may lock the account after a few wrong ones.",
    set: "Use another login", setHelp: "For a password that was changed by hand. Nothing is tried.",
    rotate: "Rotate the login", rotateHelp: "A job makes a new password, sets it in the BMC, proves it, and keeps the one before until then.",
  },

  audit: {
    title: "Audit log", caption: "What operators, jobs, agents and the system did, newest first", kind: "Kind", actor: "Who", actorHelp: "Such as token:NAME:tok_...",
    nameHelp: "Such as retire, revoke or sign_in", nodeHelp: "A node's id: the node and its jobs", resource: "Resource", resourceHelp: "Such as node, job or api_token",
    resourceId: "Resource id", since: "Since", until: "Until", sinceHelp: "Such as 2026-01-31T08:00Z; 31 days before until", untilHelp: "Such as 2026-01-31T09:00Z; now",
  },

  tokens: {
    title: "API tokens", create: "Create a token", name: "Name", nameHelp: "Who or what uses it", role: "Role", expires: "Expires", ttl: "Valid for",
    ttlHelp: "Such as 720h. Left empty, it does not expire.", revoke: "Revoke", revokeHelp: "Whoever uses it is refused from then on, and its portal sessions end.",
    createHelp: "The token is shown once, after it is made.", made: (name: string) => `Token ${name} was made`, revoked: (name: string) => `Token ${name} is revoked.`,
    intro: "Tokens are for programs and for the first sign-in. Operators sign in with the identity provider where there is one.",
  },

  stats: {
    title: "Statistics", fleet: "Fleet by state", stages: "How long stages take", span: "Window", days: (n: string) => (n === "1" ? "1 day" : `${n} days`),
    fleetCaption: (from: string, to: string) => `Nodes by state from ${from} to ${to}`, noNodes: "The fleet had no nodes in this window.",
    notDrawn: (states: string) => `In the table alone: ${states}`, figures: "The same figures as a table", at: "At",
    stagesCaption: (kind: string, jobs: number) => `Stages of ${kind}, from ${jobs === 1 ? "1 job" : `${jobs} jobs`} that succeeded`,
    noJobs: "No job succeeded in this window.", bars: "Filled bar: half of the jobs took at most this long. Outline, with its figure: nine of ten did.",
    p50: "Half end within", p90: "Nine of ten end within", jobs: "Jobs",
  },

  reason: {
    title: "Why do you open this project?",
    intro: "The project is a customer's. Its owners see each of your calls in their audit log, with your name and this reason.",
    help: "At least three characters, such as a ticket. It counts for this project until you close the tab.",
    go: "Open the project", shown: "You are in a customer's project. Its owners see each call, with the reason", change: "Change the reason",
    used: "The owners of the project see this, with the reason that you gave when you opened it.",
  },

  accounts: {
    title: "Billing accounts", one: "Billing account", projects: "Projects", most: "Projects at most", create: "Create a billing account",
    deleteHelp: "Only an account without projects can be deleted.", idHelp: "acc_...",
  },

  projects: {
    title: "Projects", one: "Project", parts: "Lists of the project", overview: "Overview", create: "Create a project", tags: "Tags", closed: "Closed",
    part: { members: "Members", invitations: "Invitations", keys: "SSH keys", tokens: "Tokens", webhooks: "Webhooks", notices: "Notices", audit: "Audit log" } as Record<string, string>,
    intro: "What is in a project is its members' own. You are asked for a reason before you see it.",
    createHelp: "The first owner is invited by a verified e-mail address, or by the subject of the sign-in.",
    ownerEmail: "E-mail address", ownerEmailHelp: "The identity provider must have verified it. Leave it empty if you give a subject.",
    ownerSubject: "Subject", ownerSubjectHelp: "oidc: and the subject of the sign-in. Leave it empty if you give an address.",
    close: "Close the project", closeHelp: "This is not undone: keys and tokens are deleted and invitations are revoked.",
    quotas: "Quotas", noQuota: "The project has no quota: it may have no nodes.", mostNodes: "Nodes at most", setQuota: "Set the quota", addQuota: "Set another quota",
    quotaHelp: "The owners of the project see the reason.", quotaSku: "total, or the name of a SKU", deleteQuota: "Delete the quota",
    deleteQuotaHelp: "Without a quota for a SKU the total counts alone. Without a total the project may have no nodes.",
    subject: "Subject", removeMember: "Remove", removeMemberHelp: "The member's keys and tokens end at once. The owners of the project see it, with your reason.",
    invite: "Invite a member", inviteDays: "Days it can be accepted", who: "Invited", revokeHelp: "It can no longer be accepted. The owners of the project see it, with your reason.",
    fingerprint: "Fingerprint", member: "Member", delete: "Delete", deleted: (name: string) => `${name} is deleted.`,
    deleteKeyHelp: "The key is used for no further node. The owners of the project see it, with your reason.", deliveries: "Deliveries",
  },

  webhooks: {
    one: "Webhook", url: "Address", types: "Events", everyType: "every event", disabled: "Disabled", failures: "Failures since the last success",
    success: "Last success", failure: "Last failure", error: "Last error", oldSecret: "Signed with the old secret too until",
    test: "Send a test", testHelp: "A test event is queued for the endpoint.", replay: "Send events again", after: "After cursor",
    replayHelp: "Events after a cursor are queued again, oldest first. 0 begins with the oldest that is kept.",
    replayed: (n: number, next: number | undefined) => `${n} events are queued again.${next ? ` Go on after cursor ${next}.` : ""}`,
    enable: "Enable", disable: "Disable", enableHelp: "Events are sent again from now on.", disableHelp: "No event is sent until it is enabled.",
    redeliver: "Send again", redeliverHelp: "The event is queued again for the endpoint, with the same id.", type: "Event", subject: "About",
    answer: "Answer", nextTry: "Next try", cursor: "Cursor", dead: "dead letters",
  },

  catalogue: {
    title: "Catalogue", item: "Title", availability: "Available", image: "Image", isolation: "Isolation", description: "Description",
    offer: "Offer a SKU", offerHelp: "It replaces the offer of the same SKU.", skuHelp: "Its name or id", profileHelp: "The id of the profile that is deployed",
    withdraw: "Withdraw", withdrawHelp: "Customers are offered it no more. What they have stays.",
  },

  docs: {
    title: "Documentation", reference: "API reference", guides: "Guides", runbooks: "Runbooks",
    runbooksHelp: "One for each failure class: what it means, what to look at, and what to do.",
    pages: {
      operations: "Operations", architecture: "Architecture", portal: "This portal", decommission: "Decommission", drift: "Drift", scrub: "Erasure and certificates",
      pxe: "Network installation", ipmi: "IPMI", agent: "The agent", tenancy: "Projects and members", webhooks: "Webhooks", settings: "Settings", security: "Security", glossary: "Glossary",
    } as Record<string, string>,
    runbookPages: [
      "access_unconfirmed", "agent_not_enrolled", "bmc_auth_rejected", "bmc_locked", "bmc_pin_mismatch", "bmc_unreachable", "boot_disk_not_found",
      "capacity_unavailable", "commissioning_failed", "compensation_failed", "configuration_invalid",
      "conflicting_discovery_candidates", "datasource_failure", "datasource_failure_repeated", "deploy_failed",
      "deploy_power_failed", "deploy_timeout", "drive_missing", "drive_unexpected", "firmware_changed", "frozen_by_operator",
      "hardware_sync_failure_repeated", "hardware_sync_unhealthy", "internal", "maas_machine_deleted", "maas_rejected",
      "maas_unavailable", "node_task_failed", "node_task_uncertain", "node_unhealthy", "payment_mismatch", "power_not_confirmed",
      "pxe_interface_unfixable", "scrub_unverified", "secret_unavailable", "ssh_seed_failure", "ssh_seed_failure_repeated",
      "stage_deadline_exceeded", "state_disagreement", "storage_layout_rejected", "storage_rejected", "store_unavailable",
      "workflow_lost",
    ],
  },

  groups: { operate: "Operate", fleet: "Fleet", configure: "Configure", customers: "Customers", access: "Access", help: "Help" },
};

/** words writes a name of the API, such as failed_retryable, in words. */
export function words(name: string | undefined): string {
  return (name ?? "").replaceAll("_", " ");
}
