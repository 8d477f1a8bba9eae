package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Part is what a command uses of the configuration; only that is required.
type Part string

// The parts. Log and metrics are always checked.
const (
	PartDatabase Part = "database"
	PartTemporal Part = "temporal"
	PartAPI      Part = "api"
	PartAgent    Part = "agent"
	PartSecrets  Part = "secrets"
	PartWorker   Part = "worker"
	// PartMigrations is the database for the command that migrates it.
	PartMigrations Part = "migrations"
)

// Problem is one setting that is wrong, by its name in the file, and what to do.
type Problem struct {
	Field   string
	Message string
}

// Invalid is every problem that was found, in the order of the file.
type Invalid []Problem

func (e Invalid) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.Field + " " + p.Message
	}
	return "the configuration is not valid: " + strings.Join(lines, "; ")
}

// Validate checks the given parts and returns an Invalid with all that is wrong.
func (c Config) Validate(parts ...Part) error {
	var v validator
	checks := map[Part]func(*validator){
		PartDatabase: c.Database.validate, PartMigrations: c.Database.validateMigrations,
		PartTemporal: c.Temporal.validate,
		PartAPI: func(v *validator) {
			c.API.validate(v)
			c.Boot.validate(v)
			c.OIDC.validate(v)
			c.Portal.validate(v)
			c.Billing.validate(v)
			c.Webhooks.validate(v)
			c.Payment.validate(v)
			c.Instance.validate(v)
		},
		PartAgent:   c.Agent.validate,
		PartSecrets: c.Secrets.validate,
		PartWorker: func(v *validator) {
			c.Worker.validate(v)
			c.Relay.validate(v)
			c.Release.validate(v)
			c.Allocation.validate(v)
			c.NetworkProbe.validate(v)
			c.Machine.validate(v)
			c.Sweep.validate(v)
			c.Reconcile.validate(v)
			c.Retention.validate(v)
			c.Webhooks.validate(v)
			c.Mail.validate(v)
			c.Payment.validate(v)
			c.Instance.validate(v)
		},
	}
	for _, p := range []Part{PartDatabase, PartMigrations, PartTemporal, PartAPI, PartAgent, PartSecrets, PartWorker} {
		if slices.Contains(parts, p) {
			checks[p](&v)
		}
	}
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "json", "text")
	if c.Metrics.Listen != "" {
		v.address("metrics.listen", c.Metrics.Listen)
	}
	if len(v.problems) > 0 {
		return Invalid(v.problems)
	}
	return nil
}

func (d Database) validate(v *validator) {
	if d.URL == "" {
		v.add("database.url", "is missing; set SLIPWAY_DATABASE_URL or database.url_file to a URL such as postgres://slipway@127.0.0.1:5432/slipway")
		return
	}
	v.postgres("database.url", d.URL)
	if d.CustomerURL != "" {
		v.postgres("database.customer_url", d.CustomerURL)
	}
	v.between("database.max_conns", d.MaxConns, 2, 1000)
}

func (t Temporal) validate(v *validator) {
	v.address("temporal.address", t.Address)
	v.required("temporal.namespace", t.Namespace, "name the namespace that Slipway's workflows live in")
	v.required("temporal.task_queue", t.TaskQueue, "name the queue that the workers serve")
	v.required("temporal.deployment_name", t.DeploymentName, "name the worker deployment")
	if strings.ContainsAny(t.DeploymentName, ".:") {
		v.add("temporal.deployment_name", "must not hold a dot or a colon: Temporal joins it with the build id by one")
	}
	v.oneOf("temporal.payload_codec", t.PayloadCodec, PayloadsEncrypted, PayloadsPlain)
	if host, _, _ := net.SplitHostPort(t.Address); t.PayloadCodec == PayloadsPlain && (!isLoopback(host) || t.BuildID != "") {
		v.add("temporal.payload_codec", "must be aes256-gcm: payloads may be plain only in development, with a Temporal on this machine and without temporal.build_id")
	}
	v.pair("temporal.tls.cert_file", t.TLS.CertFile, "temporal.tls.key_file", t.TLS.KeyFile)
	if !t.TLS.Enabled {
		for _, f := range []struct{ name, value string }{
			{"temporal.tls.ca_file", t.TLS.CAFile}, {"temporal.tls.cert_file", t.TLS.CertFile},
			{"temporal.tls.server_name", t.TLS.ServerName}, {"temporal.api_key_file", t.APIKeyFile},
		} {
			if f.value != "" {
				v.add(f.name, "is set while temporal.tls.enabled is false; turn TLS on or remove it")
			}
		}
	}
}

func (m Machine) validate(v *validator) {
	if m.StateDir != "" && (!path.IsAbs(m.StateDir) || path.Clean(m.StateDir) != m.StateDir) {
		v.add("machine.state_dir", "must be an absolute path without a slash at its end, such as /var/tmp/slipway; empty is the default")
	}
	v.between("machine.step_log_mib", m.StepLogMiB, 64, 1024)
	seen := map[string]bool{AdapterDatacenter: true, AdapterSSH: true, AdapterFake: true}
	for _, p := range m.Named() {
		switch {
		case !spec.ValidMachineID(p.Name):
			v.add("machine.providers", fmt.Sprintf("must be NAME=ADAPTER separated by commas, such as dc-1=datacenter; %q is no name", p.Name))
		case seen[p.Name]:
			v.add("machine.providers", "names "+p.Name+" twice, or gives the name of an adapter another meaning")
		case p.Adapter == AdapterFake && !m.Simulated:
			v.add("machine.providers", "gives "+p.Name+" the adapter fake, which needs machine.simulated")
		case p.Adapter != AdapterDatacenter && p.Adapter != AdapterSSH && p.Adapter != AdapterFake:
			v.add("machine.providers", fmt.Sprintf("gives %s the adapter %q; the adapters are datacenter, ssh and fake", p.Name, p.Adapter))
		}
		seen[p.Name] = true
	}
}

// maxProxies bounds the networks of trusted proxies.
const maxProxies = 64

func (a API) validate(v *validator) {
	v.address("api.listen", a.Listen)
	v.url("api.public_url", a.PublicURL, "http", "https")
	v.pair("api.tls_cert", a.TLSCert, "api.tls_key", a.TLSKey)
	v.between("api.principal_rate", a.PrincipalRate, 1, 1_000_000)
	v.between("api.address_rate", a.AddressRate, 1, 1_000_000)
	if n := len(splitList(a.TrustedProxies)); n > maxProxies || len(a.Proxies()) != n {
		v.add("api.trusted_proxies", fmt.Sprintf("must be at most %d networks separated by commas, such as 10.30.0.0/28", maxProxies))
	}
	for _, p := range a.Proxies() {
		if p.Bits() == 0 {
			v.add("api.trusted_proxies", "must not hold "+p.String()+": everybody could write the address that is limited")
		}
	}
	for _, origin := range a.Origins() {
		v.url("api.codec_origins", origin, "https", "http")
		if u, err := url.Parse(origin); err == nil && u.Path != "" {
			v.add("api.codec_origins", "must hold origins, which end after host and port")
		}
	}
}

func (b Boot) validate(v *validator) {
	if b.Listen == "" {
		return
	}
	v.address("boot.listen", b.Listen)
	if len(b.Prefixes()) == 0 || len(b.Prefixes()) != len(splitList(b.Networks)) {
		v.add("boot.networks", "must be networks separated by commas, such as 10.20.0.0/24")
	}
}

func (o OIDC) validate(v *validator) {
	if o.Issuer == "" {
		if o.Audience != "" {
			v.add("oidc.issuer", "is missing while oidc.audience is set; set both or neither")
		}
		if o.ClientID != "" {
			v.add("oidc.issuer", "is missing while oidc.client_id is set; set both or neither")
		}
		if o.CLIClientID != "" {
			v.add("oidc.issuer", "is missing while oidc.cli_client_id is set; set both or neither")
		}
		return
	}
	v.url("oidc.issuer", o.Issuer, "https", "http")
	if u, err := url.Parse(o.Issuer); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		v.add("oidc.issuer", "must be an https URL: its keys decide who may sign in")
	}
	v.required("oidc.audience", o.Audience, "name the audience that tokens for this API carry, or tokens for other programs would be accepted")
	if o.ClientID == "" && (o.ClientSecretFile != "" || o.RedirectURL != "") {
		v.add("oidc.client_id", "is missing while oidc.client_secret_file or oidc.redirect_url is set; name the client that the portal is to the issuer")
	}
	if o.RedirectURL != "" {
		v.url("oidc.redirect_url", o.RedirectURL, "http", "https")
	}
	v.required("oidc.roles_claim", o.RolesClaim, "name the claim that holds the roles")
}

func (w Webhooks) validate(v *validator) {
	if len(w.AllowedPorts()) == 0 || len(w.AllowedPorts()) != len(splitList(w.Ports)) {
		v.add("webhooks.ports", "must be ports separated by commas, such as 443")
	}
	if len(spec.ParseNetworks(w.Networks())) != len(w.Networks()) {
		v.add("webhooks.refused_networks", "must be networks separated by commas, such as 203.0.114.0/24")
	}
	if w.RetryFor < time.Minute || w.RetryFor > 14*day {
		v.add("webhooks.retry_for", "must lie between 1m and 336h")
	}
}

func (m Mail) validate(v *validator) {
	if m.Host == "" {
		return
	}
	v.between("mail.port", m.Port, 1, 65535)
	v.oneOf("mail.tls", m.TLS, "starttls", "tls", "none")
	if m.TLS == "none" && !isLoopback(m.Host) {
		v.add("mail.tls", "must be starttls or tls: notices and the password would cross the network readable")
	}
	if (m.User == "") != (m.PasswordRef == "") {
		v.add("mail.user", "and mail.password_ref must both be set, or neither")
	}
	if _, err := mail.ParseAddress(m.From); err != nil {
		v.add("mail.from", "must be an address such as slipway@example.com")
	}
}

func (p Portal) validate(v *validator) {
	v.within("portal.session_idle", p.SessionIdle, 5*time.Minute, 24*time.Hour) // use is noted once a minute
	v.within("portal.session_max", p.SessionMax, 5*time.Minute, 7*24*time.Hour)
	if p.TemporalUIURL != "" {
		v.url("portal.temporal_ui_url", p.TemporalUIURL, "http", "https")
	}
}

func (a Agent) validate(v *validator) {
	v.address("agent.listen", a.Listen)
	v.url("agent.public_url", a.PublicURL, "https")
	if (a.CADir == "") == (a.CARef == "") {
		v.add("agent.ca_dir", "or agent.ca_ref must be set, and not both: the authority that signs node certificates is in one place")
	}
	if a.OfflineAfter < 20*time.Second || a.OfflineAfter > 24*time.Hour {
		v.add("agent.offline_after", "must lie between 20s and 24h, and be some times the agents' heartbeat interval")
	}
	if a.TaskWaiters < 1 || a.TaskWaiters > 1_000_000 {
		v.add("agent.task_waiters", "must lie between 1 and 1000000: as many as this process serves nodes")
	}
	if a.CertTTL < 10*time.Minute || a.CertTTL > 90*24*time.Hour {
		v.add("agent.cert_ttl", "must lie between 10m and 2160h; a stolen certificate is of use for that long")
	}
	if a.RenewGrace < time.Hour || a.RenewGrace > 365*24*time.Hour {
		v.add("agent.renew_grace", "must lie between 1h and 8760h; a node that is off for longer needs a new enrolment token")
	}
}

func (s Secrets) validate(v *validator) {
	v.keeper("secrets.keeper", s.Keeper, "secrets.key_file", s.KeyFile)
	if s.PreviousKeeper != "" || s.PreviousKeyFile != "" {
		v.keeper("secrets.previous_keeper", s.PreviousKeeper, "secrets.previous_key_file", s.PreviousKeyFile)
	}
}

func (r Retention) validate(v *validator) {
	for name, d := range map[string]time.Duration{"tasks": r.Tasks, "findings": r.Findings, "outbox": r.Outbox, "events": r.Events, "actions": r.Actions,
		"jobs": r.Jobs, "webhooks": r.Webhooks, "notices": r.Notices, "invitations": r.Invitations, "bmc_logs": r.BMCLogs, "run_logs": r.RunLogs, "runs": r.Runs} {
		if d < time.Hour || d > 100*365*day {
			v.add("retention."+name, "must lie between 1h and 876000h")
		}
	}
	v.within("retention.payment_events", r.PaymentEvents, 31*day, 100*365*day) // one that is listed again would be taken for a new one
	v.within("retention.allocations", r.Allocations, 90*day, 100*365*day)      // customers are promised 90 days
}

func (r Relay) validate(v *validator) {
	v.within("relay.lease", r.Lease, 3*time.Second, 10*time.Minute)
	v.within("relay.poll", r.Poll, 100*time.Millisecond, time.Minute)
}

func (r Release) validate(v *validator) {
	v.within("release.revoke_deadline", r.RevokeDeadline, time.Second, 30*time.Minute)
	v.between("release.max_deliver", r.MaxDeliver, 1, 100)
}

func (a Allocation) validate(v *validator) {
	v.between("allocation.max_launches", a.MaxLaunches, 1, 100000)
	v.within("allocation.launch_window", a.LaunchWindow, time.Second, time.Hour)
	v.between("allocation.max_releasing", a.MaxReleasing, 1, 100000)
	v.between("allocation.max_unpaid", a.MaxUnpaid, 1, 100000)
	v.within("allocation.provision_deadline", a.ProvisionDeadline, 5*time.Minute, 4*time.Hour)
}

func (b Billing) validate(v *validator) {
	v.between("billing.confirm_adjustment_above", b.ConfirmAdjustmentAbove, 1, 10_000_000)
}

func (s Sweep) validate(v *validator) {
	v.within("sweep.every", s.Every, time.Second, 30*time.Second) // after a minute without a look, operators are told
	v.within("sweep.settle", s.Settle, time.Second, 10*time.Minute)
	v.within("sweep.quiet", s.Quiet, time.Second, 10*time.Minute)
	if s.Quiet < s.Settle {
		v.add("sweep.quiet", "must not be less than sweep.settle: a younger job is not checked anyway")
	}
}

func (r Reconcile) validate(v *validator) {
	v.within("reconcile.every", r.Every, time.Second, 24*time.Hour)
	v.within("reconcile.new_sites", r.NewSites, time.Second, time.Hour)
	v.between("reconcile.quarantine_percent", r.QuarantinePercent, 0, 100)
	v.between("reconcile.bmc_probes", r.BMCProbes, 0, 100_000)
	v.between("reconcile.bmc_logins", r.BMCLogins, 0, 1000)
}

func (w Worker) validate(v *validator) {
	v.between("worker.max_concurrent_activities", w.MaxConcurrentActivities, 1, 100_000)
	v.between("worker.max_concurrent_local_activities", w.MaxConcurrentLocalActivities, 1, 100_000)
	v.between("worker.max_concurrent_workflow_tasks", w.MaxConcurrentWorkflowTasks, 2, 100_000) // the SDK refuses 1
	v.between("worker.max_cached_workflows", w.MaxCachedWorkflows, 1, 1_000_000)
	if w.StopTimeout < 0 || w.StopTimeout > time.Hour {
		v.add("worker.stop_timeout", "must lie between 0s and 1h")
	}
	if w.DeadlockTimeout < time.Second || w.DeadlockTimeout > time.Hour {
		v.add("worker.deadlock_timeout", "must lie between 1s and 1h")
	}
}

// validator collects problems.
type validator struct{ problems []Problem }

func (v *validator) add(field, message string) {
	v.problems = append(v.problems, Problem{field, message})
}

func (v *validator) required(field, value, advice string) {
	if value == "" {
		v.add(field, "is missing; "+advice)
	}
}

func (v *validator) oneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.add(field, "must be one of "+strings.Join(allowed, ", "))
	}
}

func (v *validator) between(field string, n, low, high int) {
	if n < low || n > high {
		v.add(field, fmt.Sprintf("must lie between %d and %d", low, high))
	}
}

func (v *validator) within(field string, d, low, high time.Duration) {
	if d < low || d > high {
		v.add(field, fmt.Sprintf("must lie between %s and %s", low, high))
	}
}

// address accepts host:port; an empty host means all addresses.
func (v *validator) address(field, value string) {
	_, port, err := net.SplitHostPort(value)
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		v.add(field, "must be host:port, such as 127.0.0.1:8080")
	}
}

func (v *validator) url(field, value string, schemes ...string) {
	u, err := url.Parse(value)
	switch {
	case value == "":
		v.add(field, "is missing; set it to a URL such as "+schemes[len(schemes)-1]+"://slipway.example.com")
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		v.add(field, "must be a whole URL that begins with "+strings.Join(schemes, ":// or ")+"://")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		v.add(field, "must hold no user, query or fragment")
	}
}

// pair wants both of two files or neither.
func (v *validator) pair(certField, cert, keyField, key string) {
	switch {
	case cert != "" && key == "":
		v.add(keyField, "is missing while "+certField+" is set; set both or neither")
	case cert == "" && key != "":
		v.add(certField, "is missing while "+keyField+" is set; set both or neither")
	}
}

func (v *validator) keeper(field, value, fileField, file string) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" || u.User != nil {
		v.add(field, "must be base64key://, hashivault://KEY, awskms://KEY?region=R or gcpkms://..., and hold no password")
		return
	}
	switch u.Scheme {
	case "base64key":
		if value != "base64key://" {
			v.add(field, "must be just base64key://; the key belongs into the file that "+fileField+" names")
		}
		v.required(fileField, file, "name the file that holds the local key; it is made when missing")
	case "hashivault", "awskms", "gcpkms":
		if file != "" {
			v.add(fileField, "is set while "+field+" is not base64key://; remove it")
		}
	default:
		v.add(field, "must be base64key://, hashivault://KEY, awskms://KEY?region=R or gcpkms://...")
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
