package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// settings binds every field of c to a flag of a new set, with the field's
// present value as default. It is the one list of settings: flags, variables and
// their help come from it.
func settings(c *Config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("slipwayd", pflag.ContinueOnError)
	str := func(p *string, name, usage string) { fs.StringVar(p, name, *p, usage) }
	num := func(p *int, name, usage string) { fs.IntVar(p, name, *p, usage) }

	str(&c.Database.URL, "database-url", "PostgreSQL URL; one with a password only from SLIPWAY_DATABASE_URL")
	str(&c.Database.URLFile, "database-url-file", "file that holds the PostgreSQL URL")
	str(&c.Database.OwnerURL, "database-owner-url", "PostgreSQL URL for migrations, of a member of slipway_owner; empty means database-url")
	str(&c.Database.OwnerURLFile, "database-owner-url-file", "file that holds the PostgreSQL URL for migrations")
	str(&c.Database.CustomerURL, "database-customer-url", "PostgreSQL URL for requests of customers, of a member of slipway_customer only; empty serves no projects")
	str(&c.Database.CustomerURLFile, "database-customer-url-file", "file that holds the PostgreSQL URL for requests of customers")
	fs.BoolVar(&c.Database.AllowPrivilegedUser, "database-allow-privileged-user", c.Database.AllowPrivilegedUser,
		"serve although the database user could rewrite the audit log, as a superuser or the owner of the tables can")
	num(&c.Database.MaxConns, "database-max-conns", "connections of this process to PostgreSQL at most")

	str(&c.Temporal.Address, "temporal-address", "host:port of Temporal's frontend")
	str(&c.Temporal.Namespace, "temporal-namespace", "Temporal namespace of the jobs")
	str(&c.Temporal.MaintenanceNamespace, "temporal-maintenance-namespace",
		"Temporal namespace of the passes that run every few seconds or minutes; a worker registers it when it is missing; empty means temporal-namespace with -maintenance after it; the same as temporal-namespace keeps both in one")
	str(&c.Temporal.TaskQueue, "temporal-task-queue", "task queue of Slipway's workers")
	str(&c.Temporal.BuildID, "temporal-build-id", "build id of this worker; empty runs it unversioned, as in development")
	str(&c.Temporal.DeploymentName, "temporal-deployment-name", "worker deployment this build belongs to")
	str(&c.Temporal.APIKeyFile, "temporal-api-key-file", "file that holds the Temporal API key")
	str(&c.Temporal.PayloadCodec, "temporal-payload-codec", "aes256-gcm encrypts what Temporal stores; none does not, for development with a Temporal on this machine")
	fs.BoolVar(&c.Temporal.TLS.Enabled, "temporal-tls-enabled", c.Temporal.TLS.Enabled, "speak TLS to Temporal")
	str(&c.Temporal.TLS.CAFile, "temporal-tls-ca-file", "certificates that Temporal's is checked against; empty means the system's")
	str(&c.Temporal.TLS.CertFile, "temporal-tls-cert-file", "client certificate for Temporal")
	str(&c.Temporal.TLS.KeyFile, "temporal-tls-key-file", "key of the client certificate for Temporal")
	str(&c.Temporal.TLS.ServerName, "temporal-tls-server-name", "name expected in Temporal's certificate")

	str(&c.API.Listen, "api-listen", "address the API listens on")
	str(&c.API.TLSCert, "api-tls-cert", "certificate file of the API; empty means plain HTTP behind a proxy")
	str(&c.API.TLSKey, "api-tls-key", "key file of the API's certificate")
	str(&c.API.PublicURL, "api-public-url", "URL under which people reach the API")

	str(&c.API.CodecOrigins, "api-codec-origins", "origins of Temporal Web UIs that may ask the codec server, separated by commas, such as https://temporal.example.com")

	num(&c.API.PrincipalRate, "api-principal-rate", "requests a second of one user, with his tokens of projects, or of one other token at one API process; five times as many may come at once")
	num(&c.API.AddressRate, "api-address-rate", "requests a second of one address at one API process; five times as many may come at once; a proxy that api-trusted-proxies does not name is one address")
	str(&c.API.TrustedProxies, "api-trusted-proxies", "networks of reverse proxies and load balancers, separated by commas, whose X-Forwarded-For names the client; the header of all others is ignored")

	str(&c.Boot.Listen, "boot-listen", "address of the boot routes and of machines' reports, in plain HTTP; empty serves no machine that boots from the network")
	str(&c.Boot.Networks, "boot-networks", "networks whose addresses may use boot-listen, separated by commas; all others get 404")

	str(&c.Agent.Listen, "agent-listen", "address the agent API listens on")
	str(&c.Agent.PublicURL, "agent-public-url", "https URL under which node agents reach the agent API")
	str(&c.Agent.CADir, "agent-ca-dir", "folder of the node certificate authority")
	str(&c.Agent.CARef, "agent-ca-ref", "secret that holds the node certificate authority, instead of a folder")
	fs.DurationVar(&c.Agent.OfflineAfter, "agent-offline-after", c.Agent.OfflineAfter, "how long an active node may be silent before it goes offline")
	fs.IntVar(&c.Agent.TaskWaiters, "agent-task-waiters", c.Agent.TaskWaiters, "how many agents may wait for a task at once at one API process; as many as it serves nodes")
	fs.DurationVar(&c.Agent.CertTTL, "agent-cert-ttl", c.Agent.CertTTL, "life of a node's certificate, which its agent renews at half")
	fs.DurationVar(&c.Agent.RenewGrace, "agent-renew-grace", c.Agent.RenewGrace, "how long after its end a node's certificate can still be renewed")

	str(&c.OIDC.Issuer, "oidc-issuer", "URL of the OpenID Connect issuer; empty means API tokens only")
	str(&c.OIDC.Audience, "oidc-audience", "audience that a token must name")
	str(&c.OIDC.RolesClaim, "oidc-roles-claim", "claim that holds the roles")
	str(&c.OIDC.GroupsClaim, "oidc-groups-claim", "claim that holds the groups, which projects may give roles to")
	str(&c.OIDC.ClientID, "oidc-client-id", "client that the portal is to the issuer; empty means that browsers sign in with API tokens only")
	str(&c.OIDC.ClientSecretFile, "oidc-client-secret-file", "file that holds the secret of the client; empty for a public client")
	str(&c.OIDC.CLIClientID, "oidc-cli-client-id", "client ID of the command line, a public client of the issuer; empty means that programs sign in with API tokens only")
	str(&c.OIDC.RedirectURL, "oidc-redirect-url", "URL that the issuer sends browsers back to; empty means /portal/oidc/callback below api-public-url")

	fs.DurationVar(&c.Portal.SessionIdle, "portal-session-idle", c.Portal.SessionIdle, "how long a session of the portal lasts that nobody uses")
	fs.DurationVar(&c.Portal.SessionMax, "portal-session-max", c.Portal.SessionMax, "how long a session of the portal lasts at most")
	str(&c.Portal.TemporalUIURL, "portal-temporal-ui-url", "URL of the Temporal Web UI, which the portal links to; empty shows no links")

	str(&c.Secrets.Keeper, "secrets-keeper", "what seals secrets: base64key://, hashivault://KEY, awskms://KEY?region=R or gcpkms://...")
	str(&c.Secrets.KeyFile, "secrets-key-file", "key file of the local keeper, made when missing")
	str(&c.Secrets.PreviousKeeper, "secrets-previous-keeper", "keeper that still opens what it sealed before a change")
	str(&c.Secrets.PreviousKeyFile, "secrets-previous-key-file", "key file of a local previous keeper")

	num(&c.Worker.MaxConcurrentActivities, "worker-max-concurrent-activities", "activities at a time")
	num(&c.Worker.MaxConcurrentLocalActivities, "worker-max-concurrent-local-activities", "local activities at a time")
	num(&c.Worker.MaxConcurrentWorkflowTasks, "worker-max-concurrent-workflow-tasks", "workflow tasks at a time")
	num(&c.Worker.MaxCachedWorkflows, "worker-max-cached-workflows", "workflows kept in memory")
	fs.DurationVar(&c.Worker.StopTimeout, "worker-stop-timeout", c.Worker.StopTimeout, "time running activities get at shutdown")
	fs.DurationVar(&c.Worker.DeadlockTimeout, "worker-deadlock-timeout", c.Worker.DeadlockTimeout, "how long workflow code may compute without yielding before its task is run again")

	fs.DurationVar(&c.Relay.Lease, "relay-lease", c.Relay.Lease, "how long a worker claims the start of a workflow before another may send it; the same for all workers")
	fs.DurationVar(&c.Relay.Poll, "relay-poll", c.Relay.Poll, "how often a worker reads the outbox when no notification arrives")

	fs.DurationVar(&c.Release.RevokeDeadline, "release-revoke-deadline", c.Release.RevokeDeadline, "how long a release waits for a proof that the tenant's access has ended before it cuts the node's power")
	num(&c.Allocation.MaxLaunches, "allocation-max-launches", "how many allocations a billing account may request in allocation-launch-window")
	fs.DurationVar(&c.Allocation.LaunchWindow, "allocation-launch-window", c.Allocation.LaunchWindow, "the time in which a billing account may request allocation-max-launches allocations")
	num(&c.Allocation.MaxReleasing, "allocation-max-releasing", "how many nodes of a billing account may be in releasing while it requests another")
	num(&c.Allocation.MaxUnpaid, "allocation-max-unpaid", "how many nodes a billing account may have had for nothing within an hour while it requests another: given back before they were active, or failed after its keys were installed")
	fs.DurationVar(&c.Allocation.ProvisionDeadline, "allocation-provision-deadline", c.Allocation.ProvisionDeadline, "how long a node may be provisioned after its claim before it is taken back and cleaned")
	num(&c.Billing.ConfirmAdjustmentAbove, "billing-confirm-adjustment-above", "the amount above which an adjustment has to be confirmed, in whole units of its currency, and in hundreds where the currency has no minor unit: 1000 is 1000.00 USD and 100000 JPY")
	str(&c.NetworkProbe.Targets, "network-probe-targets", "what nodes of tenants must not reach besides what Slipway knows, as NAME=HOST:PORT separated by commas")
	str(&c.NetworkProbe.Allowed, "network-probe-allowed", "names of targets, or first words of names such as maas, bmc and node, that nodes of tenants may reach, separated by commas")
	num(&c.Release.MaxDeliver, "release-max-deliver", "how often a stage of a release tries what may pass by itself before the release has failed")

	fs.BoolVar(&c.Machine.Simulated, "machine-simulated", c.Machine.Simulated,
		"offer the provider fake, whose machines exist only in the memory of a worker; for development")
	str(&c.Machine.StateDir, "machine-state-dir",
		"folder on machines in which the commands of runs keep their output and their end, an absolute path in which the site's SSH user may write; empty is /var/lib/slipway/ops")
	str(&c.Machine.Providers, "machine-providers",
		"names that machines may state as their provider besides ssh and datacenter, as NAME=ADAPTER separated by commas, such as dc-1=datacenter; the adapters are datacenter, ssh and, with machine.simulated, fake")
	fs.BoolVar(&c.Machine.CustomersTakeNodes, "machine-customers-take-nodes", c.Machine.CustomersTakeNodes,
		"let members of a project start REPAVE and RMA on a machine of the project that is linked to a node: the node is installed again, or quarantined. Without it operators start them")
	num(&c.Machine.StepLogMiB, "machine-step-log-mib", "MiB of output that are kept of one step of a run, the first eighth and the end: 64 to 1024")
	fs.DurationVar(&c.Sweep.Every, "sweep-every", c.Sweep.Every, "how often the sweeper compares jobs with workflows")
	fs.DurationVar(&c.Sweep.Settle, "sweep-settle", c.Sweep.Settle, "the least age of a job, a workflow or a start that the sweeper checks")
	fs.DurationVar(&c.Sweep.Quiet, "sweep-quiet", c.Sweep.Quiet, "how long a running job must have reported nothing before the sweeper asks Temporal about it")

	fs.DurationVar(&c.Reconcile.Every, "reconcile-every", c.Reconcile.Every, "how often each site is compared with what is known of it")
	fs.DurationVar(&c.Reconcile.NewSites, "reconcile-new-sites", c.Reconcile.NewSites, "how often a worker looks for sites whose passes are not scheduled yet")
	num(&c.Reconcile.QuarantinePercent, "reconcile-quarantine-percent",
		"percentage of a site's nodes in service that may be quarantined automatically within an hour, at least one node; 0 quarantines none")
	str(&c.Reconcile.MinAgentVersion, "reconcile-min-agent-version", "oldest agent version that is no drift; empty means any")
	num(&c.Reconcile.BMCProbes, "reconcile-bmc-probes", "BMCs that one pass over a site may ask without a login")
	num(&c.Reconcile.BMCLogins, "reconcile-bmc-logins", "BMCs that one pass over a site may log in to for unknown power, and at least for the health of parts, whose share grows with the site; 0 logs in to none")

	fs.DurationVar(&c.Retention.Tasks, "retention-tasks", c.Retention.Tasks, "how long a node's tasks stay after they ended and their job has")
	fs.DurationVar(&c.Retention.Findings, "retention-findings", c.Retention.Findings, "how long the sweeper's findings stay after they were closed")
	fs.DurationVar(&c.Retention.Outbox, "retention-outbox", c.Retention.Outbox, "how long rows of the outbox stay after they were carried out")
	fs.DurationVar(&c.Retention.Events, "retention-events", c.Retention.Events, "how long events can be read; a reader that was away for longer has missed some")
	fs.DurationVar(&c.Retention.Actions, "retention-actions", c.Retention.Actions, "how long the action log shows tries of stages after they ended")

	fs.DurationVar(&c.Retention.Jobs, "retention-jobs", c.Retention.Jobs,
		"how long ended jobs stay with their stages; the newest of each kind of a node, the audit log and certificates stay longer")
	fs.DurationVar(&c.Retention.Webhooks, "retention-webhooks", c.Retention.Webhooks, "how long deliveries to webhooks are listed after they ended")
	fs.DurationVar(&c.Retention.Notices, "retention-notices", c.Retention.Notices, "how long the notices of a project are kept")
	fs.DurationVar(&c.Retention.Invitations, "retention-invitations", c.Retention.Invitations,
		"how long invitations to projects stay after they ended; one that a member accepted stays with the member")
	fs.DurationVar(&c.Retention.RunLogs, "retention-run-logs", c.Retention.RunLogs, "how long the output of the steps of runs is kept")
	fs.DurationVar(&c.Retention.Runs, "retention-runs", c.Retention.Runs,
		"how long ended runs of machines stay with their steps; a run with output, the newest of each machine and those of campaigns stay longer")
	fs.DurationVar(&c.Retention.Allocations, "retention-allocations", c.Retention.Allocations,
		"how long customers can read an allocation after it ended; at least 90 days. Then its name, tags, keys and texts are deleted")
	fs.DurationVar(&c.Retention.PaymentEvents, "retention-payment-events", c.Retention.PaymentEvents,
		"how long events of the payment provider stay; at least 31 days, for it lists them for 30")
	fs.DurationVar(&c.Retention.BMCLogs, "retention-bmc-logs", c.Retention.BMCLogs, "how long entries of BMCs' logs stay after they were copied")

	str(&c.Webhooks.Ports, "webhooks-ports", "ports that webhooks of tenants may use, separated by commas")
	str(&c.Webhooks.RefusedNetworks, "webhooks-refused-networks", "public networks that webhooks of tenants may not use, separated by commas: your own")
	fs.DurationVar(&c.Webhooks.RetryFor, "webhooks-retry-for", c.Webhooks.RetryFor, "how long the delivery of an event is tried again")

	str(&c.Mail.Host, "mail-host", "SMTP server that notices are sent by; empty sends none by e-mail")
	num(&c.Mail.Port, "mail-port", "port of the SMTP server")
	str(&c.Mail.TLS, "mail-tls", "starttls, tls or none; none only for a server on this machine")
	str(&c.Mail.User, "mail-user", "user at the SMTP server; empty signs in as nobody")
	str(&c.Mail.PasswordRef, "mail-password-ref", "secret that holds the password of the SMTP user")
	str(&c.Mail.From, "mail-from", "address that notices are sent from")

	str(&c.Payment.StripeKeyRef, "payment-stripe-key-ref", "secret that holds the key of the Stripe account; empty turns payments off")
	str(&c.Payment.StripeURL, "payment-stripe-url", "base of Stripe's API; empty is Stripe itself")
	fs.BoolVar(&c.Payment.StripeLive, "payment-stripe-live", c.Payment.StripeLive, "the key is one of live mode: real money moves")
	str(&c.Payment.WebhookSecretRefs, "payment-webhook-secret-refs", "secret that signs Stripe's webhooks; two, separated by a comma, while one is rolled")
	num(&c.Payment.SessionTTLSeconds, "payment-session-ttl-seconds", "how long a payment page is open")
	num(&c.Payment.CreditMaxAttempts, "payment-credit-max-attempts", "how often a job payment_reconcile tries the credit of a paid session before it parks")
	str(&c.Payment.RedirectHosts, "payment-redirect-hosts", "hosts to which payers may be sent, separated by commas, besides that of api-public-url")
	num(&c.Payment.MinAmount, "payment-min-amount", "least amount of a payment, in whole units of its currency")
	num(&c.Payment.MaxAmount, "payment-max-amount", "largest amount of a payment, in whole units of its currency")
	num(&c.Payment.SessionsPerHour, "payment-sessions-per-hour", "how many payments a user may ask for in an hour")
	num(&c.Payment.AccountSessionsPerHour, "payment-account-sessions-per-hour", "how many payments all users of a billing account may ask for in an hour")

	fs.DurationVar(&c.Instance.MockDuration, "instance-mock-duration", c.Instance.MockDuration,
		"how long a simulated instance takes to become ready; 0 turns the provider mock off, whose servers exist only in the memory of a worker")
	str(&c.Instance.ScalewayProjectID, "instance-scaleway-project-id", "project of Scaleway in which instances are made; empty makes none there")
	str(&c.Instance.ScalewayAccessKey, "instance-scaleway-access-key", "access key of Scaleway; it is no secret")
	str(&c.Instance.ScalewayKeyRef, "instance-scaleway-key-ref", "secret of the kind cloud_key that holds the secret key of Scaleway")
	str(&c.Instance.ScalewayURL, "instance-scaleway-url", "base of Scaleway's API; empty is Scaleway itself")
	str(&c.Instance.ScalewayZones, "instance-scaleway-zones", "zones of Scaleway in which instances may be made, separated by commas")
	str(&c.Instance.ScalewayImage, "instance-scaleway-image", "label of the image of an instance whose request names none")
	str(&c.Instance.SSHSources, "instance-ssh-sources", "networks from which instances may be reached by SSH, separated by commas: those of the workers of Slipway")
	str(&c.Instance.WorkerSources, "instance-worker-sources", "networks from which the ports 8000 and 8080 of instances may be reached, separated by commas")
	str(&c.Instance.Installation, "instance-installation", "name of this installation, in the tags of what it makes at a provider; each installation in a project needs its own")
	fs.IntVar(&c.Instance.CustomerLimit, "instance-customer-limit", c.Instance.CustomerLimit,
		"how many live instances each project may have by requests of its members; 0 leaves instances to operators")
	fs.DurationVar(&c.Instance.ArchiveAfter, "instance-archive-after", c.Instance.ArchiveAfter, "how long after its end an instance leaves the lists")

	str(&c.Log.Level, "log-level", "debug, info, warn or error")
	str(&c.Log.Format, "log-format", "json or text")
	str(&c.Metrics.Listen, "metrics-listen", "address of /metrics, /healthz and /readyz; empty turns it off")
	return fs
}

// variable is the environment's spelling of a flag's name.
func variable(flag string) string {
	return "SLIPWAY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
