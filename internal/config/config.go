// Package config is slipwayd's configuration: one struct, read from a YAML file,
// then from SLIPWAY_... variables, then from flags; what comes later wins.
//
// Every setting has one name in three spellings: api.public_url in the file,
// SLIPWAY_API_PUBLIC_URL in the environment, --api-public-url as a flag. A key
// the file has and the program does not know is an error, since a misspelt
// setting would silently keep its default.
//
// Passwords do not stand in the file or on the command line: they are named as
// files (..._file). The one exception is database.url from the environment.
package config

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Config is everything slipwayd can be told. Addresses are host:port, URLs are
// absolute, files are paths on this machine, durations are Go's (90s, 24h).
type Config struct {
	Database Database `yaml:"database"`
	Temporal Temporal `yaml:"temporal"`
	API      API      `yaml:"api"`
	Boot     Boot     `yaml:"boot"`
	Agent    Agent    `yaml:"agent"`
	OIDC     OIDC     `yaml:"oidc"`
	Portal   Portal   `yaml:"portal"`
	Secrets  Secrets  `yaml:"secrets"`
	Worker   Worker   `yaml:"worker"`
	Log      Log      `yaml:"log"`
	Metrics  Metrics  `yaml:"metrics"`

	Relay      Relay      `yaml:"relay"`
	Sweep      Sweep      `yaml:"sweep"`
	Reconcile  Reconcile  `yaml:"reconcile"`
	Retention  Retention  `yaml:"retention"`
	Release    Release    `yaml:"release"`
	Allocation Allocation `yaml:"allocation"`

	NetworkProbe NetworkProbe `yaml:"network_probe"`
	Machine      Machine      `yaml:"machine"`

	Webhooks Webhooks `yaml:"webhooks"`
	Mail     Mail     `yaml:"mail"`
	Billing  Billing  `yaml:"billing"`
	Payment  Payment  `yaml:"payment"`
	Instance Instance `yaml:"instance"`
}

// Webhooks is how events of projects are sent to the addresses that tenants name.
type Webhooks struct {
	// Ports are the ports that may be used, RefusedNetworks public networks that may not, both
	// separated by commas.
	Ports           string        `yaml:"ports"`
	RefusedNetworks string        `yaml:"refused_networks"`
	RetryFor        time.Duration `yaml:"retry_for"`
}

// AllowedPorts returns the members of Ports that are ports.
func (w Webhooks) AllowedPorts() []uint16 {
	var out []uint16
	for _, text := range splitList(w.Ports) {
		if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
			out = append(out, uint16(n))
		}
	}
	return out
}

// Networks returns the members of RefusedNetworks.
func (w Webhooks) Networks() []string { return splitList(w.RefusedNetworks) }

// Mail is the SMTP server that notices are sent by; without a host none are sent by e-mail.
type Mail struct {
	Host        string `yaml:"host"`
	Port        int    `yaml:"port"`
	TLS         string `yaml:"tls"`
	User        string `yaml:"user"`
	PasswordRef string `yaml:"password_ref"`
	From        string `yaml:"from"`
}

func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// Database is where PostgreSQL is. A URL and its file exclude each other; Load
// reads the file, so that the URL is what a program uses.
type Database struct {
	URL      string `yaml:"url"`
	URLFile  string `yaml:"url_file"`
	MaxConns int    `yaml:"max_conns"`
	// OwnerURL is for migrations only, see MigrationURL.
	OwnerURL     string `yaml:"owner_url"`
	OwnerURLFile string `yaml:"owner_url_file"`
	// CustomerURL is what requests of customers connect as: a member of slipway_customer and of
	// nothing else. Without it projects are not served.
	CustomerURL     string `yaml:"customer_url"`
	CustomerURLFile string `yaml:"customer_url_file"`
	// AllowPrivilegedUser lets a process serve as a user that could rewrite the audit log.
	AllowPrivilegedUser bool `yaml:"allow_privileged_user"`
}

// Temporal is where the engine is and which queue and build this process serves.
type Temporal struct {
	Address   string `yaml:"address"`
	Namespace string `yaml:"namespace"`
	// MaintenanceNamespace is where Schedules and their passes are, so that Namespace lists jobs;
	// see PassNamespace.
	MaintenanceNamespace string `yaml:"maintenance_namespace"`

	TaskQueue      string      `yaml:"task_queue"`
	BuildID        string      `yaml:"build_id"`
	DeploymentName string      `yaml:"deployment_name"`
	APIKeyFile     string      `yaml:"api_key_file"`
	PayloadCodec   string      `yaml:"payload_codec"`
	TLS            TemporalTLS `yaml:"tls"`
}

// PassNamespace returns MaintenanceNamespace, or its default: installations that namespaces keep
// apart share neither.
func (t Temporal) PassNamespace() string {
	if t.MaintenanceNamespace != "" {
		return t.MaintenanceNamespace
	}
	return t.Namespace + "-maintenance"
}

// The values of Temporal.PayloadCodec.
const (
	PayloadsEncrypted = "aes256-gcm"
	PayloadsPlain     = "none"
)

// TemporalTLS secures the connection to Temporal.
type TemporalTLS struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// API is the HTTP and gRPC API for people and programs.
type API struct {
	Listen    string `yaml:"listen"`
	TLSCert   string `yaml:"tls_cert"`
	TLSKey    string `yaml:"tls_key"`
	PublicURL string `yaml:"public_url"`
	// CodecOrigins are the origins of Temporal Web UIs, separated by commas.
	CodecOrigins string `yaml:"codec_origins"`
	// PrincipalRate and AddressRate are how many requests of one principal and one address a
	// process serves in a second.
	PrincipalRate int `yaml:"principal_rate"`
	AddressRate   int `yaml:"address_rate"`
	// TrustedProxies are the networks of the reverse proxies whose X-Forwarded-For names the
	// client, separated by commas.
	TrustedProxies string `yaml:"trusted_proxies"`
}

// Proxies returns the members of TrustedProxies that are networks.
func (a API) Proxies() []netip.Prefix { return prefixes(a.TrustedProxies) }

// Boot is the listener of machines that boot from the network, which is closed to all others.
type Boot struct {
	// Listen is empty where no machine boots from the network: the routes are served nowhere then.
	Listen string `yaml:"listen"`
	// Networks are those whose addresses may call, separated by commas.
	Networks string `yaml:"networks"`
}

// Prefixes returns the members of Networks that are networks.
func (b Boot) Prefixes() []netip.Prefix { return prefixes(b.Networks) }

// prefixes returns the members of a list, separated by commas, that are networks.
func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range splitList(list) {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// privateNetworks are those that are not routed on the Internet, and this machine.
const privateNetworks = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,169.254.0.0/16,127.0.0.0/8,fc00::/7,fe80::/10,::1/128"

// Origins returns the members of CodecOrigins.
func (a API) Origins() []string {
	return splitList(a.CodecOrigins)
}

// Agent is the API for node agents, which always speaks TLS. Its certificate
// authority is in CADir, or sealed as the secret that CARef names.
type Agent struct {
	Listen    string        `yaml:"listen"`
	PublicURL string        `yaml:"public_url"`
	CADir     string        `yaml:"ca_dir"`
	CARef     string        `yaml:"ca_ref"`
	CertTTL   time.Duration `yaml:"cert_ttl"`
	// RenewGrace is how long after its end a certificate can still be renewed.
	RenewGrace time.Duration `yaml:"renew_grace"`
	// OfflineAfter is how long an active node may be silent.
	OfflineAfter time.Duration `yaml:"offline_after"`
	// TaskWaiters is how many agents may wait for a task at once at one API
	// process; each that waits costs some kilobytes, and one too many is asked to
	// come again later.
	TaskWaiters int `yaml:"task_waiters"`
}

// OIDC is who may sign in.
type OIDC struct {
	Issuer     string `yaml:"issuer"`
	Audience   string `yaml:"audience"`
	RolesClaim string `yaml:"roles_claim"`
	// GroupsClaim holds the groups that projects may give roles to.
	GroupsClaim string `yaml:"groups_claim"`
	// ClientID and the secret in ClientSecretFile are the portal's as a client of the issuer.
	// Without a ClientID browsers sign in with API tokens only.
	ClientID         string `yaml:"client_id"`
	ClientSecretFile string `yaml:"client_secret_file"`
	RedirectURL      string `yaml:"redirect_url"`
	// CLIClientID is the client that programs on users' machines are. Without it slipway login
	// takes API tokens only.
	CLIClientID string `yaml:"cli_client_id"`
}

// CLIToken is the token of a program's sign-in that the API accepts: the ID token if the audience
// is the client of programs itself, else the access token.
func (o OIDC) CLIToken() string {
	if o.Audience == o.CLIClientID {
		return "id_token"
	}
	return "access_token"
}

// Portal is the operator portal and the sessions of its browsers.
type Portal struct {
	SessionIdle   time.Duration `yaml:"session_idle"`
	SessionMax    time.Duration `yaml:"session_max"`
	TemporalUIURL string        `yaml:"temporal_ui_url"`
}

// Secrets is what seals stored secrets. The previous keeper still opens what it
// sealed.
type Secrets struct {
	Keeper          string `yaml:"keeper"`
	KeyFile         string `yaml:"key_file"`
	PreviousKeeper  string `yaml:"previous_keeper"`
	PreviousKeyFile string `yaml:"previous_key_file"`
}

// Worker bounds what one worker process does at a time.
type Worker struct {
	MaxConcurrentActivities      int           `yaml:"max_concurrent_activities"`
	MaxConcurrentLocalActivities int           `yaml:"max_concurrent_local_activities"`
	MaxConcurrentWorkflowTasks   int           `yaml:"max_concurrent_workflow_tasks"`
	MaxCachedWorkflows           int           `yaml:"max_cached_workflows"`
	StopTimeout                  time.Duration `yaml:"stop_timeout"`
	// DeadlockTimeout is how long workflow code may compute without yielding
	// before its task is failed as deadlocked and run again. It is longer than
	// the second of the SDK: a machine that stood still is no deadlock, and
	// workflowcheck proves that nothing here blocks.
	DeadlockTimeout time.Duration `yaml:"deadlock_timeout"`
}

// Allocation limits how nodes are given to tenants.
type Allocation struct {
	// MaxLaunches is how many allocations a billing account may request in LaunchWindow,
	// MaxReleasing how many of its nodes may be in releasing or release_failed while it requests
	// one, MaxUnpaid how many it may have had within an hour without paying.
	MaxLaunches  int           `yaml:"max_launches"`
	LaunchWindow time.Duration `yaml:"launch_window"`
	MaxReleasing int           `yaml:"max_releasing"`
	MaxUnpaid    int           `yaml:"max_unpaid"`
	// ProvisionDeadline is how long a node may be provisioned after its claim before it is taken
	// back.
	ProvisionDeadline time.Duration `yaml:"provision_deadline"`
}

// Billing is about the money of customers.
type Billing struct {
	// ConfirmAdjustmentAbove is the amount above which an adjustment has to be confirmed, in whole
	// units of its currency; in a currency without minor units in hundreds.
	ConfirmAdjustmentAbove int `yaml:"confirm_adjustment_above"`
}

// Machine is what runs on machines may use.
type Machine struct {
	// Simulated offers the provider "fake", whose machines exist only in the memory of a worker.
	Simulated bool `yaml:"simulated"`
	// StateDir is the folder on machines that keeps what becomes of commands.
	StateDir string `yaml:"state_dir"`
	// Providers names further providers, as NAME=ADAPTER separated by commas.
	Providers string `yaml:"providers"`
	// CustomersTakeNodes lets customers start runs that install the node of their machine again, or
	// take it out of service.
	CustomersTakeNodes bool `yaml:"customers_take_nodes"`
	// StepLogMiB is how much output is kept of one step of a run.
	StepLogMiB int `yaml:"step_log_mib"`
}

// StepLog returns how many bytes of output are kept of one step of a run.
func (m Machine) StepLog() int64 { return int64(m.StepLogMiB) << 20 }

// MachineProvider is a provider of machines that the settings name, and the adapter that it has.
type MachineProvider struct{ Name, Adapter string }

// The adapters of machines that a provider may have.
const (
	AdapterDatacenter = "datacenter"
	AdapterSSH        = "ssh"
	AdapterFake       = "fake"
)

// Named returns the providers that the settings name. An entry without an equals sign has no
// adapter.
func (m Machine) Named() []MachineProvider {
	var out []MachineProvider
	for _, entry := range splitList(m.Providers) {
		name, adapter, _ := strings.Cut(entry, "=")
		out = append(out, MachineProvider{strings.TrimSpace(name), strings.TrimSpace(adapter)})
	}
	return out
}

// Release is how hard the release of an allocation tries.
type Release struct {
	// RevokeDeadline is how long a proof of the end of the tenant's access may take before the
	// node's power is cut. MaxDeliver is how often a stage is tried before it parks when its
	// failure may end by itself.
	RevokeDeadline time.Duration `yaml:"revoke_deadline"`
	MaxDeliver     int           `yaml:"max_deliver"`
}

// Relay is how workers start the workflows that the API has asked for. All workers of an
// installation need the same lease: the sweeper releases claims that last longer.
type Relay struct {
	// Lease is how long a start is claimed for. A pass of the relay gets five sixths of it.
	Lease time.Duration `yaml:"lease"`
	// Poll is how often a relay reads the outbox when no notification arrives.
	Poll time.Duration `yaml:"poll"`
}

// Sweep is how often the sweeper compares jobs with workflows, and what is too young to be checked.
type Sweep struct {
	Every time.Duration `yaml:"every"`
	// Settle is the least age of a job, a workflow or a start that is checked: a younger one may be
	// about to change.
	Settle time.Duration `yaml:"settle"`
	// Quiet is how long a running job must have reported nothing before Temporal is asked about it.
	Quiet time.Duration `yaml:"quiet"`
}

// Reconcile is how sites are compared with what is known of them.
type Reconcile struct {
	Every time.Duration `yaml:"every"`
	// NewSites is how often a worker looks for sites whose passes are not scheduled yet.
	NewSites time.Duration `yaml:"new_sites"`
	// QuarantinePercent of a site's nodes in service may be quarantined
	// automatically within an hour, at least one; 0 quarantines none.
	QuarantinePercent int    `yaml:"quarantine_percent"`
	MinAgentVersion   string `yaml:"min_agent_version"`
	BMCProbes         int    `yaml:"bmc_probes"`
	BMCLogins         int    `yaml:"bmc_logins"`
}

// Retention is how long rows stay in the database that nothing works on any
// more. The audit log stays as a whole.
type Retention struct {
	Tasks    time.Duration `yaml:"tasks"`
	Findings time.Duration `yaml:"findings"`
	Outbox   time.Duration `yaml:"outbox"`
	Events   time.Duration `yaml:"events"`
	Actions  time.Duration `yaml:"actions"`
	Jobs     time.Duration `yaml:"jobs"`
	Webhooks time.Duration `yaml:"webhooks"`
	Notices  time.Duration `yaml:"notices"`

	Invitations time.Duration `yaml:"invitations"`
	Allocations time.Duration `yaml:"allocations"`
	RunLogs     time.Duration `yaml:"run_logs"`
	Runs        time.Duration `yaml:"runs"`
	// PaymentEvents is for what the payment provider told.
	PaymentEvents time.Duration `yaml:"payment_events"`
	// BMCLogs is for the entries of BMCs' logs, since they were copied.
	BMCLogs time.Duration `yaml:"bmc_logs"`
}

// Log is how much is logged and in which form.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Metrics is where /metrics, /healthz and /readyz are served; empty turns the
// listener off.
type Metrics struct {
	Listen string `yaml:"listen"`
}

const day = 24 * time.Hour

// Default returns the settings that hold when nothing else is said.
func Default() Config {
	return Config{
		Database: Database{MaxConns: 20},
		Temporal: Temporal{
			Address: "127.0.0.1:7233", Namespace: "default",
			TaskQueue: "slipway", DeploymentName: "slipway",
			PayloadCodec: PayloadsEncrypted,
		},
		Machine: Machine{StepLogMiB: 64},
		API:     API{Listen: "127.0.0.1:8080", PrincipalRate: 200, AddressRate: 1000},
		Agent:   Agent{Listen: "127.0.0.1:8443", CertTTL: 7 * 24 * time.Hour, RenewGrace: 90 * 24 * time.Hour, OfflineAfter: 90 * time.Second, TaskWaiters: 20000},
		Boot:    Boot{Networks: privateNetworks},
		OIDC:    OIDC{RolesClaim: "roles", GroupsClaim: "groups"},
		Portal:  Portal{SessionIdle: 30 * time.Minute, SessionMax: 12 * time.Hour},
		Secrets: Secrets{Keeper: "base64key://"},
		Worker: Worker{
			MaxConcurrentActivities: 200, MaxConcurrentLocalActivities: 200,
			MaxConcurrentWorkflowTasks: 100, MaxCachedWorkflows: 2000, StopTimeout: 30 * time.Second,
			DeadlockTimeout: 8 * time.Second, // the server gives a task of 10 s up by then
		},
		Log:     Log{Level: "info", Format: "json"},
		Metrics: Metrics{Listen: "127.0.0.1:9090"},

		Retention: Retention{
			Tasks: 90 * day, Findings: 30 * day, Outbox: 7 * day, Events: 30 * day, Actions: 90 * day, Jobs: 400 * day, Webhooks: 30 * day, Notices: 90 * day,
			Invitations: 90 * day, Allocations: 90 * day, RunLogs: 90 * day, Runs: 400 * day, PaymentEvents: 90 * day, BMCLogs: 180 * day,
		},
		Webhooks:   Webhooks{Ports: "443", RetryFor: 3 * day},
		Billing:    Billing{ConfirmAdjustmentAbove: 1000},
		Payment:    defaultPayment(),
		Instance:   defaultInstance(),
		Mail:       Mail{Port: 587, TLS: "starttls"},
		Relay:      Relay{Lease: 30 * time.Second, Poll: 2 * time.Second},
		Release:    Release{RevokeDeadline: 2 * time.Minute, MaxDeliver: 5},
		Allocation: Allocation{MaxLaunches: 60, LaunchWindow: time.Minute, MaxReleasing: 20, MaxUnpaid: 5, ProvisionDeadline: 30 * time.Minute},
		Sweep:      Sweep{Every: 15 * time.Second, Settle: 15 * time.Second, Quiet: 30 * time.Second},
		Reconcile: Reconcile{
			Every: 5 * time.Minute, NewSites: 15 * time.Second, QuarantinePercent: 5, BMCProbes: 500, BMCLogins: 20,
		},
	}
}
