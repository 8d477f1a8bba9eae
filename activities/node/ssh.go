package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// SSHIn names a node to log in to.
type SSHIn struct {
	contract.JobRef
	Site spec.SiteSpec `json:"site"`
	IPs  []string      `json:"ips"`
	// Until is how long a node that does not take a login yet is asked again,
	// every Poll; zero asks once. It comes from the workflow's clock.
	Until time.Time     `json:"until,omitzero"`
	Poll  spec.Duration `json:"poll,omitempty"`
}

// SSHFacts is what a command on the node told.
type SSHFacts struct {
	Address string `json:"address,omitempty"`
	Note    string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says.
func (f SSHFacts) TimelineNote() string { return f.Note }

// ActionMetadata is what the action log says of the login.
func (f SSHFacts) ActionMetadata() lifecycle.ActionMetadata {
	host, _, _ := net.SplitHostPort(f.Address)
	return lifecycle.ActionMetadata{IPAddress: host}
}

// sshLogin is a node to log in to by SSH.
type sshLogin struct {
	providers.SSHTarget
	record func(context.Context, error) // writes what came of the login into the audit log
}

// SSHAddress returns host:port of a node's sshd: that of its record, or the one that the site has
// at these addresses. It returns "" when there is neither.
func SSHAddress(node db.Node, site spec.SiteSpec, ips []string) string {
	return cmp.Or(node.SSHAddress, site.SSHAddress(ips))
}

// target opens the login of a node, after its address was checked. The audit log names the login
// before it is used.
func (a *Activities) target(ctx context.Context, in SSHIn) (sshLogin, error) {
	node, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return sshLogin{}, fault.Internal(ctx, err)
	}
	address := SSHAddress(node, in.Site, in.IPs)
	if address == "" {
		return sshLogin{}, fault.New(lifecycle.FailSSHSeed, "MAAS shows no address for the node yet")
	}
	ref, use := providers.SecretRef(in.Site.SSHKeyRef), sshUse(node.SiteID, node.ID, address)
	audit := login.Attempt{Job: in.JobRef, Ref: string(ref), Address: address, Protocol: "ssh"}
	rule, err := a.Secrets.AddressRule(ctx, ref, use)
	if err != nil {
		return sshLogin{}, cmp.Or(audit.RecordRefusal(ctx, a.Store, err), fault.Login(ctx, err, fault.SSH))
	}
	if err := audit.Record(ctx, a.Store, login.Started); err != nil {
		return sshLogin{}, err
	}
	key, err := a.Secrets.Resolve(ctx, ref, use)
	if err != nil {
		return sshLogin{}, fault.Login(ctx, err, fault.SSH)
	}
	return sshLogin{providers.SSHTarget{
		Address: address, Rule: rule, User: cmp.Or(in.Site.SSHUser, cloudinit.DefaultUser), HostKey: node.SSHHostKey, PrivateKeyPEM: key,
	}, audit.Recorder(a.Store)}, nil
}

// run runs a command on a node.
func (a *Activities) run(ctx context.Context, t sshLogin, c providers.SSHCommand) (providers.SSHResult, error) {
	res, err := a.SSH.RunSSH(ctx, t.SSHTarget, c)
	t.record(ctx, err)
	return res, err
}

// seedTimeout is how long cloud-init on the node is waited for in one login.
const seedTimeout = 5 * time.Minute

// CheckSSHSeed logs in with the pinned host key and the site's key and waits
// for cloud-init to end: the proof that the user-data was taken. MAAS says
// Deployed before sshd answers, so a login that fails is repeated until
// in.Until. Read-only.
func (a *Activities) CheckSSHSeed(ctx context.Context, in SSHIn) (SSHFacts, error) {
	t, err := a.target(ctx, in)
	if err != nil {
		return SSHFacts{}, err
	}
	var res providers.SSHResult
	err = in.patiently(ctx, func() error {
		var err error
		res, err = a.run(ctx, t, providers.SSHCommand{
			Argv: []string{"cloud-init", "status", "--wait", "--format", "json"}, Timeout: seedTimeout,
		})
		return err
	})
	if providers.IsKind(err, providers.KindUncertain) && ctx.Err() == nil {
		return SSHFacts{}, fault.New(lifecycle.FailSSHSeed, "%v", err) // nothing was changed, so nothing is uncertain
	}
	if err != nil {
		return SSHFacts{}, fault.SSH(ctx, err)
	}
	var st struct {
		Status string   `json:"status"`
		Errors []string `json:"errors"`
	}
	// Exit 2 means done with recoverable errors, which cloud-init also reports
	// for deprecated keys; the status itself decides.
	switch jerr := json.Unmarshal(res.Stdout, &st); {
	case res.ExitCode == exitTimeout:
		return SSHFacts{}, fault.New(lifecycle.FailSSHSeed, "cloud-init on the node did not end within %s", seedTimeout)
	case jerr != nil || (st.Status != "done" && st.Status != "degraded done"):
		return SSHFacts{}, fault.New(lifecycle.FailSSHSeed, "cloud-init on the node ended %q (exit %d) %s",
			st.Status, res.ExitCode, strings.Join(st.Errors, "; "))
	}
	return SSHFacts{Address: t.Address, Note: "cloud-init is " + st.Status}, nil
}

// exitTimeout is the exit status of a command that ran out of time
// (providers.SSHResult).
const exitTimeout = 124

// patiently repeats a read on the node until it is answered, until it fails for a reason that
// waiting does not change, or until in.Until.
func (in SSHIn) patiently(ctx context.Context, read func() error) error {
	every := in.Poll.D()
	if every <= 0 {
		every = 10 * time.Second
	}
	for {
		err := read()
		switch providers.KindOf(err) {
		case providers.KindUnreachable, providers.KindUnauthorized, providers.KindProtocol, providers.KindUncertain:
		default:
			return err
		}
		if !time.Now().Add(every).Before(in.Until) {
			return err
		}
		activity.RecordHeartbeat(ctx, "no login yet")
		if err := poll.Sleep(ctx, every); err != nil {
			return err
		}
	}
}

// RepairSyncIn is the input of RepairHardwareSync.
type RepairSyncIn struct {
	SSHIn
	TokenRef string        `json:"token_ref"`
	Interval spec.Duration `json:"interval"`
}

const syncService = `[Unit]
Description=Report the hardware to MAAS
After=network-online.target

[Service]
Type=oneshot
ExecStart=/usr/bin/maas-run-scripts report-results --config /etc/maas/maas-machine-creds.yml
`

// RepairHardwareSync installs MAAS's hardware-sync units and the machine's
// credentials on the node and starts the timer: switching the flag on in MAAS
// after the deployment installs nothing by itself. Files are replaced, so it
// may be repeated.
func (a *Activities) RepairHardwareSync(ctx context.Context, in RepairSyncIn) (SSHFacts, error) {
	t, err := a.target(ctx, in.SSHIn)
	if err != nil {
		return SSHFacts{}, err
	}
	token, err := a.Secrets.Resolve(ctx, providers.SecretRef(in.TokenRef), providers.OwnUse())
	if err != nil {
		return SSHFacts{}, fault.Secret(ctx, err)
	}
	for _, step := range syncSteps(in, token) {
		if err := a.change(ctx, in.SSHIn, t, step); err != nil {
			return SSHFacts{}, err
		}
	}
	return SSHFacts{Address: t.Address, Note: "hardware sync timer installed and started"}, nil
}

// change is a command that changes the node, with the one that tells whether
// it has: exit status 0 says so.
type change struct {
	argv, seen []string
	stdin      []byte             // of both
	secrets    []providers.Secret // in stdin
	// class is that of a command that ends with another status than 0; "" is
	// hardware_sync_unhealthy.
	class lifecycle.FailureClass
}

func syncSteps(in RepairSyncIn, token providers.Secret) []change {
	timer := fmt.Sprintf("[Unit]\nDescription=Report the hardware to MAAS every %s\n\n[Timer]\nOnBootSec=60\nOnUnitActiveSec=%d\n\n[Install]\nWantedBy=timers.target\n",
		in.Interval.D(), int(in.Interval.D().Seconds()))
	put := func(path, mode, body string) change {
		return change{stdin: []byte(body), argv: []string{"install", "-D", "-m", mode, "/dev/stdin", path}, seen: []string{"cmp", "-s", "-", path}}
	}
	creds := put("/etc/maas/maas-machine-creds.yml", "0600", token.Reveal())
	creds.secrets = []providers.Secret{token}
	return []change{
		creds,
		put("/lib/systemd/system/maas_hardware_sync.service", "0644", syncService),
		put("/lib/systemd/system/maas_hardware_sync.timer", "0644", timer),
		{argv: []string{"systemctl", "daemon-reload"}},
		{argv: []string{"systemctl", "enable", "--now", syncTimer}, seen: []string{"systemctl", "is-active", "--quiet", syncTimer}},
	}
}

const syncTimer = "maas_hardware_sync.timer"

// changeTries is how often a change is sent whose answers are lost.
const changeTries = 2

// change runs one change on the node. When the connection breaks after it was
// sent, the node is looked at: the change is there, or it is sent once more. A
// node that cannot be looked at leaves the task uncertain, which is an operator's
// decision.
func (a *Activities) change(ctx context.Context, in SSHIn, t sshLogin, c change) error {
	for tried := 1; ; tried++ {
		res, err := a.command(ctx, t, c, c.argv)
		if !providers.IsKind(err, providers.KindUncertain) {
			return c.classify(ctx, res, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		done, lerr := a.done(ctx, in, t, c)
		switch {
		case lerr != nil && ctx.Err() != nil:
			return ctx.Err()
		case lerr != nil:
			return fault.New(lifecycle.FailNodeTaskUncertain, "it is not known whether %s was carried out: %v; and the node could not be looked at: %v", c, err, lerr)
		case done:
			return nil
		case tried == changeTries:
			return fault.New(lifecycle.FailNodeTaskUncertain, "it is not known whether %s was carried out, sent %d times: %v", c, tried, err)
		}
	}
}

// done looks whether a change was made; one that nothing shows counts as not
// made, so it must bear to be repeated.
func (a *Activities) done(ctx context.Context, in SSHIn, t sshLogin, c change) (bool, error) {
	if len(c.seen) == 0 {
		return false, nil
	}
	var res providers.SSHResult
	err := in.patiently(ctx, func() error {
		var err error
		res, err = a.command(ctx, t, c, c.seen)
		return err
	})
	return err == nil && res.ExitCode == 0, err
}

func (c change) String() string { return strings.Join(c.argv, " ") }

func (c change) classify(ctx context.Context, res providers.SSHResult, err error) error {
	if err != nil {
		return fault.SSH(ctx, err)
	}
	if res.ExitCode != 0 {
		return fault.New(cmp.Or(c.class, lifecycle.FailHWSyncUnhealthy), "%s on the node ended with status %d: %s",
			c, res.ExitCode, strings.TrimSpace(string(res.Stderr[:min(len(res.Stderr), 300)])))
	}
	return nil
}

func (a *Activities) command(ctx context.Context, t sshLogin, c change, argv []string) (providers.SSHResult, error) {
	if t.User != "root" {
		argv = append([]string{"sudo", "-n"}, argv...)
	}
	return a.run(ctx, t, providers.SSHCommand{Argv: argv, Stdin: c.stdin, Secrets: c.secrets, Timeout: time.Minute})
}
