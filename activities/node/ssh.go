package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// SSHIn names a node to log in to.
type SSHIn struct {
	contract.JobRef
	Site lifecycle.SiteSpec `json:"site"`
	IPs  []string           `json:"ips"`
}

// SSHFacts is what a command on the node told.
type SSHFacts struct {
	Address string `json:"address,omitempty"`
	Note    string `json:"note,omitempty"`
}

// TimelineNote is what the node's timeline says.
func (f SSHFacts) TimelineNote() string { return f.Note }

func (a *Activities) target(ctx context.Context, in SSHIn) (providers.SSHTarget, error) {
	node, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return providers.SSHTarget{}, fault.Internal(ctx, err)
	}
	key, err := a.Secrets.Resolve(ctx, providers.SecretRef(in.Site.SSHKeyRef))
	if err != nil {
		return providers.SSHTarget{}, fault.Secret(ctx, err)
	}
	port := in.Site.SSHPort
	if port == 0 {
		port = 22
	}
	address := node.SSHAddress
	if address == "" && len(in.IPs) > 0 {
		address = net.JoinHostPort(in.IPs[0], strconv.Itoa(port))
	}
	if address == "" {
		return providers.SSHTarget{}, fault.New(lifecycle.FailSSHSeed, "MAAS shows no address for the node yet")
	}
	user := in.Site.SSHUser
	if user == "" {
		user = cloudinit.DefaultUser
	}
	return providers.SSHTarget{Address: address, User: user, HostKey: node.SSHHostKey, PrivateKeyPEM: key}, nil
}

// CheckSSHSeed logs in with the pinned host key and the site's key and waits
// for cloud-init to end: the proof that the user-data was taken. Read-only.
func (a *Activities) CheckSSHSeed(ctx context.Context, in SSHIn) (SSHFacts, error) {
	t, err := a.target(ctx, in)
	if err != nil {
		return SSHFacts{}, err
	}
	res, err := a.SSH.RunSSH(ctx, t, providers.SSHCommand{
		Argv: []string{"cloud-init", "status", "--wait", "--format", "json"}, Timeout: 5 * time.Minute,
	})
	if err != nil {
		return SSHFacts{}, fault.SSH(ctx, err)
	}
	var st struct {
		Status string   `json:"status"`
		Errors []string `json:"errors"`
	}
	// Exit 2 means done with recoverable errors, which cloud-init also reports
	// for deprecated keys; the status itself decides.
	if jerr := json.Unmarshal(res.Stdout, &st); jerr != nil || (st.Status != "done" && st.Status != "degraded done") {
		return SSHFacts{}, fault.New(lifecycle.FailSSHSeed, "cloud-init on the node ended %q (exit %d) %s",
			st.Status, res.ExitCode, strings.Join(st.Errors, "; "))
	}
	return SSHFacts{Address: t.Address, Note: "cloud-init is " + st.Status}, nil
}

// RepairSyncIn is the input of RepairHardwareSync.
type RepairSyncIn struct {
	SSHIn
	TokenRef string             `json:"token_ref"`
	Interval lifecycle.Duration `json:"interval"`
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
	token, err := a.Secrets.Resolve(ctx, providers.SecretRef(in.TokenRef))
	if err != nil {
		return SSHFacts{}, fault.Secret(ctx, err)
	}
	timer := fmt.Sprintf("[Unit]\nDescription=Report the hardware to MAAS every %s\n\n[Timer]\nOnBootSec=60\nOnUnitActiveSec=%d\n\n[Install]\nWantedBy=timers.target\n",
		in.Interval.D(), int(in.Interval.D().Seconds()))
	files := []struct{ path, mode, body string }{
		{"/etc/maas/maas-machine-creds.yml", "0600", token.Reveal()},
		{"/lib/systemd/system/maas_hardware_sync.service", "0644", syncService},
		{"/lib/systemd/system/maas_hardware_sync.timer", "0644", timer},
	}
	for _, f := range files {
		if err := a.run(ctx, t, []byte(f.body), "install", "-D", "-m", f.mode, "/dev/stdin", f.path); err != nil {
			return SSHFacts{}, err
		}
	}
	if err := a.run(ctx, t, nil, "systemctl", "daemon-reload"); err != nil {
		return SSHFacts{}, err
	}
	if err := a.run(ctx, t, nil, "systemctl", "enable", "--now", "maas_hardware_sync.timer"); err != nil {
		return SSHFacts{}, err
	}
	return SSHFacts{Address: t.Address, Note: "hardware sync timer installed and started"}, nil
}

func (a *Activities) run(ctx context.Context, t providers.SSHTarget, stdin []byte, argv ...string) error {
	if t.User != "root" {
		argv = append([]string{"sudo", "-n"}, argv...)
	}
	res, err := a.SSH.RunSSH(ctx, t, providers.SSHCommand{Argv: argv, Stdin: stdin, Timeout: time.Minute})
	if err != nil {
		return fault.SSH(ctx, err)
	}
	if res.ExitCode != 0 {
		return fault.New(lifecycle.FailHWSyncUnhealthy, "%s on the node ended with status %d: %s",
			strings.Join(argv[:min(2, len(argv))], " "), res.ExitCode, strings.TrimSpace(string(res.Stderr[:min(len(res.Stderr), 300)])))
	}
	return nil
}
