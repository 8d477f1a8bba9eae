// Package machine holds the activities that carry out the steps of a run on a machine, by the adapter
// of the machine's provider.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Activities is what these activities need.
type Activities struct {
	Store    *db.Store
	Secrets  providers.Secrets
	Adapters providers.MachineAdapters
	// Login returns an SSH target with its address rule and the credential that a reference names.
	Login func(ctx context.Context, s providers.Secrets, ref providers.SecretRef, use providers.Use, t providers.SSHTarget, keyID string) (providers.SSHTarget, error)
	// Power switches the power of machines that are linked to a node, by the BMC of the node.
	Power NodePower
	// RebootScript restarts a machine from within; "" is DefaultRebootScript.
	RebootScript string
	// Poll is the pause before a machine that gave no answer is asked again; 0 is 3 s.
	Poll time.Duration
	// TokenCache is how long an API server takes a bootstrap token that was deleted; 0 is 10 s.
	TokenCache time.Duration
}

// NodePower switches the power of nodes; activities/bmc does it, with its guard of logins.
type NodePower interface {
	PowerCycleByBMC(ctx context.Context, in bmcact.PowerIn) (contract.PowerFacts, error)
	PowerOnByBMC(ctx context.Context, in bmcact.PowerIn) (contract.PowerFacts, error)
}

// DefaultRebootScript restarts a machine from within. Other users than root need sudo without a password.
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
}

// StepFacts is what came of a step.
type StepFacts struct {
	BootID    string `json:"boot_id,omitempty"`
	Netboot   string `json:"netboot,omitempty"` // the device of the next boot, "" for none
	Note      string `json:"note,omitempty"`
	Simulated bool   `json:"simulated,omitempty"`
}

// TimelineNote is what the timeline says.
func (f StepFacts) TimelineNote() string { return f.Note }

// session is a step that is being carried out.
type session struct {
	a       *Activities
	in      StepIn
	step    runplan.Step
	machine machinesdb.Machine
	adapter providers.MachineAdapter
	target  providers.MachineTarget
	bmcCA   string                       // of the site
	record  func(context.Context, error) // writes what came of a login
	unsent  bool                         // the machine refused the login of the only call of a command
}

// open reads the step, its machine and how that is reached.
func (a *Activities) open(ctx context.Context, in StepIn) (*session, error) {
	run, err := machinesdb.GetRun(ctx, a.Store, in.RunID)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	s := &session{a: a, in: in, record: func(context.Context, error) {}}
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
	if s.adapter.Simulated {
		return s, nil
	}
	return s, s.login(ctx)
}

// login fills in how the machine is reached by SSH. The audit log names the login before it is used.
func (s *session) login(ctx context.Context) error {
	m, address := s.machine, s.machine.Spec.SSHEndpoint
	hostKey, siteID, nodeID := m.HostKey, text(m.SiteID), text(m.NodeID)
	if nodeID != "" {
		node, err := s.a.Store.Node(ctx, nodeID)
		if err != nil {
			return fault.Internal(ctx, err)
		}
		hostKey, siteID = node.SSHHostKey, text(node.SiteRef)
	}
	switch {
	case address == "":
		return fault.New(lifecycle.FailConfiguration, "the machine has no spec.ssh_endpoint")
	case siteID == "":
		return fault.New(lifecycle.FailConfiguration, "the machine has no site, whose login and networks hold for it; set its access")
	case hostKey == "":
		return fault.New(lifecycle.FailConfiguration, "the host key of the machine is not pinned; set its access with the key that its console shows")
	}
	site, err := s.a.Store.Site(ctx, siteID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	s.bmcCA = site.Spec.BMCCAPEM
	ref := providers.SecretRef(site.Spec.SSHKeyRef)
	use := providers.Use{Kind: spec.SecretSSHKey, Site: siteID, Node: nodeID, Address: address}
	audit := login.Attempt{Job: s.in.JobRef, Ref: string(ref), Address: address, Protocol: "ssh"}
	if err := audit.Record(ctx, s.a.Store, login.Started); err != nil {
		return err
	}
	target := providers.SSHTarget{Address: address, User: cmp.Or(site.Spec.SSHUser, cloudinit.DefaultUser), HostKey: hostKey}
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

// lacks returns the failure of a step whose adapter cannot do it. Runs are refused before that, so the
// machine or the configuration has changed since.
func (s *session) lacks(c runplan.Capability) error {
	return fault.New(lifecycle.FailConfiguration, "provider %s of the machine has no %s", s.machine.Spec.Provider, c)
}

// facts returns what came of a step.
func (s *session) facts(format string, args ...any) StepFacts {
	return StepFacts{Note: fmt.Sprintf(format, args...), Simulated: s.adapter.Simulated}
}

// failureOf types an error of an adapter. A machine that is not reached within the attempt is a step
// that failed.
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
