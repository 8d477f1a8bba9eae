// Package machine holds the activities that carry out the steps of a run on a machine. They call
// the adapter of the machine's provider.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store    *db.Store
	Secrets  providers.Secrets
	Adapters providers.MachineAdapters
	// Login returns an SSH target with its address rule and the credential that a reference names.
	Login func(ctx context.Context, s providers.Secrets, ref providers.SecretRef, use providers.Use, t providers.SSHTarget, keyID string) (providers.SSHTarget, error)
	// Power reaches the BMC of a node, for machines that are linked to one.
	Power NodePower
	// StepLog is how many bytes of output are kept of one step; 0 is machinesdb.DefaultStepLog.
	StepLog int64
	// RebootScript restarts a machine from within; "" is DefaultRebootScript.
	RebootScript string
	// Poll is the pause before a machine that gave no answer is asked again; 0 is 3 s.
	Poll time.Duration
	// TokenCache is how long an API server still accepts a bootstrap token that was deleted; 0 is
	// 10 s.
	TokenCache time.Duration
}

// NodePower is what these activities need of the BMC of a node. activities/bmc implements it, with
// its guard of logins.
type NodePower interface {
	PowerCycleByBMC(ctx context.Context, in bmcact.PowerIn) (contract.PowerFacts, error)
	PowerOnByBMC(ctx context.Context, in bmcact.PowerIn) (contract.PowerFacts, error)
	IdentifyByBMC(ctx context.Context, in bmcact.BootIn) (bmcact.BootFacts, error)
	SetBootByBMC(ctx context.Context, in bmcact.BootIn) (bmcact.BootFacts, error)
	ReadBootByBMC(ctx context.Context, in bmcact.BootIn) (bmcact.BootFacts, error)
}

// DefaultRebootScript restarts a machine from within. Other users than root need sudo without a
// password.
const DefaultRebootScript = `if [ "$(id -u)" -eq 0 ]; then set --; else set -- sudo -n; fi
"$@" systemctl reboot || "$@" reboot
`

const defaultPoll = 3 * time.Second

func (a *Activities) poll() time.Duration { return cmp.Or(a.Poll, defaultPoll) }

// StepIn names one attempt of a step. The parameters of the step are those of the run's row.
type StepIn struct {
	contract.JobRef
	RunID   string `json:"run_id"`
	Step    string `json:"step"`
	Attempt int    `json:"attempt"` // from 1
	// IPs are the addresses that MAAS gave the machine when the run installed it. They are empty
	// before that.
	IPs []string `json:"ips,omitempty"`
	// Again says that an activity before, which no worker finished, may have done a part of the
	// attempt.
	Again bool `json:"again,omitempty"`
}

// StepFacts is the result of a step.
type StepFacts struct {
	BootID    string `json:"boot_id,omitempty"`
	Netboot   string `json:"netboot,omitempty"` // the device of the next boot, "" for none
	Note      string `json:"note,omitempty"`
	Simulated bool   `json:"simulated,omitempty"`
	// ByNode says that the step goes through the node of the machine, and not through the adapter.
	// Series is MAAS's name of the image of a repave.
	ByNode bool   `json:"by_node,omitempty"`
	Series string `json:"series,omitempty"`
	// Moved says that the machine answers at the ssh_endpoint of its record since the step.
	Moved bool `json:"moved,omitempty"`
	// Did is what the action log says of the step.
	Did lifecycle.ActionMetadata `json:"did,omitzero"`
}

// ActionMetadata returns what the action log says of the step.
func (f StepFacts) ActionMetadata() lifecycle.ActionMetadata { return f.Did }

// TimelineNote returns the text for the timeline.
func (f StepFacts) TimelineNote() string { return f.Note }

// session holds what is needed while a step is carried out.
type session struct {
	a          *Activities
	in         StepIn
	step       runplan.Step
	machine    machinesdb.Machine
	adapter    providers.MachineAdapter
	target     providers.MachineTarget
	project    string                       // the project whose run it is, "" for the platform
	acceptRisk bool                         // an operator has started the run at a risk
	node       db.Node                      // the node of the machine; without an id for none
	site       db.Site                      // the site of the machine; without an id for none
	record     func(context.Context, error) // writes the outcome of a login
	unsent     bool                         // the machine refused the login of the only call of a command
}

// open reads the step, its machine, and the SSH login of the machine. It fails where the project of
// the run may not use the machine any more.
func (a *Activities) open(ctx context.Context, in StepIn) (*session, error) {
	s, err := a.read(ctx, in)
	if err != nil || s.adapter.Simulated {
		return s, err
	}
	return s, s.login(ctx)
}

// openToUndo is open for what undoes a step. The job of the run has the node until that is done, so
// that it reaches no other tenant.
func (a *Activities) openToUndo(ctx context.Context, in StepIn) (*session, error) {
	s, err := a.readToUndo(ctx, in)
	if err != nil || s.adapter.Simulated {
		return s, err
	}
	return s, s.login(ctx)
}

// read is readToUndo for what carries out a step. It fails where the project of the run may not use
// the machine any more.
func (a *Activities) read(ctx context.Context, in StepIn) (*session, error) {
	s, err := a.readToUndo(ctx, in)
	if err != nil {
		return s, err
	}
	return s, s.checkRight(ctx)
}

// checkRight fails when the project of the run may not use the machine any more: its release of the
// node was fenced while the run was under way, or before it began.
func (s *session) checkRight(ctx context.Context) error {
	if s.project == "" {
		return nil // a run of the platform
	}
	m, err := machinesdb.Get(ctx, s.a.Store, s.machine.ID)
	if err == nil {
		err = machinesdb.CheckRight(ctx, s.a.Store, m, s.project)
	}
	if errors.Is(err, db.ErrNotFound) {
		return fault.New(lifecycle.FailStateDisagreement, "the project of the run has given the machine back, so that nothing more is done with it")
	}
	return fault.Internal(ctx, err)
}

// readToUndo reads the step, its machine, and the node and site of the machine.
func (a *Activities) readToUndo(ctx context.Context, in StepIn) (*session, error) {
	run, err := machinesdb.GetRun(ctx, a.Store, in.RunID)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	s := &session{a: a, in: in, project: text(run.ProjectID), acceptRisk: run.AcceptRisk, record: func(context.Context, error) {}}
	for _, step := range run.Steps {
		if step.Name == in.Step {
			s.step = step
		}
	}
	if s.step.Kind() == "" {
		return nil, fault.New(lifecycle.FailConfiguration, "the run has no step %s", in.Step)
	}
	if s.machine, err = machinesdb.Get(ctx, a.Store, run.MachineID); err != nil {
		return nil, fault.Internal(ctx, err)
	}
	if s.adapter, err = a.Adapters.For(s.machine.Spec.Provider); err != nil {
		return nil, fault.New(lifecycle.FailConfiguration, "%s", err.Error())
	}
	s.target = providers.MachineTarget{ID: s.machine.ID}
	siteID := text(s.machine.SiteID)
	if id := text(s.machine.NodeID); id != "" {
		if s.node, err = a.Store.Node(ctx, id); err != nil {
			return nil, fault.Internal(ctx, err)
		}
		siteID = text(s.node.SiteRef)
	}
	if siteID != "" {
		if s.site, err = a.Store.Site(ctx, siteID); err != nil {
			return nil, fault.Internal(ctx, err)
		}
	}
	return s, nil
}

// login fills in the SSH login of the machine. The audit log names the login before it is used. If
// a machine of a node states no endpoint, the address is that of the node's record, or the one that
// MAAS gave when the run installed the machine.
func (s *session) login(ctx context.Context) error {
	address, hostKey := s.machine.Spec.SSHEndpoint, s.machine.HostKey
	if s.node.ID != "" {
		hostKey = s.node.SSHHostKey
		host, _, _ := net.SplitHostPort(address)
		switch {
		case len(s.in.IPs) > 0 && !slices.Contains(s.in.IPs, host): // the installation gave the machine another address
			address = nodeact.SSHAddress(db.Node{}, s.site.Spec, s.in.IPs)
		case address == "":
			address = nodeact.SSHAddress(s.node, s.site.Spec, s.node.IPAddresses)
		}
	}
	switch {
	case address == "":
		return fault.New(lifecycle.FailConfiguration, "the machine has no spec.ssh_endpoint")
	case s.site.ID == "":
		return fault.New(lifecycle.FailConfiguration, "the machine has no site, whose login and networks hold for it; set its access")
	case hostKey == "":
		return fault.New(lifecycle.FailConfiguration, "the host key of the machine is not pinned; set its access with the key that its console shows")
	}
	return s.loginAt(ctx, address, hostKey)
}

// loginAt fills in the login at an address, under the pinned host key.
func (s *session) loginAt(ctx context.Context, address, hostKey string) (err error) {
	ref := providers.SecretRef(s.site.Spec.SSHKeyRef)
	use := providers.Use{Kind: spec.SecretSSHKey, Site: s.site.ID, Node: s.node.ID, Address: address}
	audit := login.Attempt{Job: s.in.JobRef, Ref: string(ref), Address: address, Protocol: "ssh"}
	if err := audit.Record(ctx, s.a.Store, login.Started); err != nil {
		return err
	}
	target := providers.SSHTarget{Address: address, User: cmp.Or(s.site.Spec.SSHUser, cloudinit.DefaultUser), HostKey: hostKey}
	s.target.SSH, err = s.a.Login(ctx, s.a.Secrets, ref, use, target, s.in.RunID)
	if err != nil {
		return cmp.Or(audit.RecordRefusal(ctx, s.a.Store, err), fault.Login(ctx, err, fault.SSH))
	}
	s.record = audit.Recorder(s.a.Store)
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// lacks returns the failure of a step that the adapter cannot do. A run with such a step is refused
// at its start, so the machine or the configuration has changed since.
func (s *session) lacks(c runplan.Capability) error {
	return fault.New(lifecycle.FailConfiguration, "provider %s of the machine has no %s", s.machine.Spec.Provider, c)
}

// facts returns the result of a step.
func (s *session) facts(format string, args ...any) StepFacts {
	return StepFacts{Note: fmt.Sprintf(format, args...), Simulated: s.adapter.Simulated, Did: s.actionMetadata()}
}

// actionMetadata returns which machine the step was carried out on, and where it was reached.
func (s *session) actionMetadata() lifecycle.ActionMetadata {
	host, _, _ := net.SplitHostPort(s.target.SSH.Address)
	return lifecycle.ActionMetadata{ServerID: text(s.node.MAASSystemID), IPAddress: host}
}

// exitMetadata returns what the action log says of a command that ended with a status.
func (s *session) exitMetadata(status int) lifecycle.ActionMetadata {
	did := s.actionMetadata()
	did.SSHExitStatus = strconv.Itoa(status)
	return did
}

// failureOf turns an error of an adapter into a typed failure. When the machine is not reached
// within the attempt, the step has failed.
func (s *session) failureOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var pe *providers.Error
	switch {
	case errors.As(err, &pe) && pe.Kind == providers.KindUncertain:
		return fault.New(lifecycle.FailCommandUncertain, "%s", pe.Error())
	case errors.As(err, &pe) && s.adapter.Simulated, providers.IsKind(err, providers.KindUnreachable), providers.IsKind(err, providers.KindTooBig):
		return fault.New(lifecycle.FailCommand, "%s", err.Error())
	}
	return fault.SSH(ctx, err)
}
