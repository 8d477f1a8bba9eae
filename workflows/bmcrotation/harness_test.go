package bmcrotation_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/bmcrotation"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// rack is a BMC, what Slipway has stored of its logins, and what MAAS holds.
type rack struct {
	mu                   sync.Mutex
	current, candidate   string // stored slots, by reference
	onBMC, inMAAS        string // whose password each has
	calls                []string
	fail                 map[string][]error
	wrongInMAAS, noLogin bool // at some moment; see safe
	falseUndos           int  // undos that do nothing and report success
}

// note keeps a call, answers with the next failure of that name, and looks
// whether the two slots still hold what the BMC takes.
func (r *rack) note(name string) error {
	r.calls = append(r.calls, name)
	r.noLogin = r.noLogin || r.onBMC != r.current && r.onBMC != r.candidate
	if q := r.fail[name]; len(q) > 0 {
		r.fail[name] = q[1:]
		return q[0]
	}
	return nil
}

func (r *rack) does(name string, effect func()) (contract.RotationFacts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.note(name); err != nil {
		return contract.RotationFacts{}, err
	}
	effect()
	return contract.RotationFacts{CurrentRef: r.current, CandidateRef: r.candidate, Committed: r.current == "bmc/new"}, nil
}

func (r *rack) PrepareRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("prepare", func() {
		if r.current != "bmc/new" {
			r.candidate = "bmc/new"
		}
	})
}

func (r *rack) ApplyRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("apply", func() { r.onBMC = "bmc/new" })
}

func (r *rack) VerifyRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("verify", func() {})
}

func (r *rack) CommitRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("commit", func() { r.current, r.candidate = "bmc/new", "" })
}

func (r *rack) UndoRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("undo", func() {
		if r.falseUndos > 0 {
			r.falseUndos--
			return
		}
		r.current, r.candidate = r.onBMC, ""
	})
}

func (r *rack) CheckRotationEnded(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "check")
	if r.candidate != "" {
		return contract.RotationFacts{Note: "the candidate " + r.candidate + " is left"}, nil
	}
	return contract.RotationFacts{Undone: true}, nil
}

func (r *rack) UpdatePowerLogin(_ context.Context, in maasact.PowerLoginIn) (contract.MachineFacts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.ObserveOnly {
		r.calls = append(r.calls, "look")
		return contract.MachineFacts{Done: r.inMAAS == in.CredentialRef, Status: "outdated"}, nil
	}
	if err := r.note("maas:" + in.CredentialRef); err != nil {
		return contract.MachineFacts{}, err
	}
	r.wrongInMAAS = r.wrongInMAAS || in.CredentialRef != r.onBMC
	r.inMAAS = in.CredentialRef
	return contract.MachineFacts{Done: true, Status: "current", Power: "on"}, nil
}

// fixture is a rotation on a rack.
type fixture struct {
	*stagetest.Harness
	rack *rack
}

func setup(t *testing.T) *fixture {
	t.Helper()
	r := &rack{current: "bmc/old", onBMC: "bmc/old", inMAAS: "bmc/old", fail: map[string][]error{}}
	request := contract.BMCRotationInput{BMCID: "bmc_1", Hostname: "gpu-1"}
	return &fixture{Harness: stagetest.New(t, bmcrotation.Rotate, contract.KindBMCRotation, request, r), rack: r}
}

func (b *fixture) run() lifecycle.JobStatus { return b.Run().Status }

// loseRun runs the job until it is parked and loses that run: what is stored and what is outside
// are as they were.
func (b *fixture) loseRun() {
	b.T.Helper()
	b.at(time.Hour, lifecycle.ActionCancel, false)
	b.RunUntil(30*time.Minute, func() []any {
		b.rack = &rack{
			current: b.rack.current, candidate: b.rack.candidate, onBMC: b.rack.onBMC, inMAAS: b.rack.inMAAS, fail: map[string][]error{},
		}
		return []any{b.rack}
	})
	require.True(b.T, b.Store.Snapshot().Status.Parked())
}

// at sends an action after a delay of virtual time.
func (b *fixture) at(d time.Duration, a lifecycle.Action, risk bool) *stagetest.Answer {
	return b.Act(d, a, contract.ActionRequest{Reason: "test", AcceptRisk: risk})
}

// requireSafe checks what must hold whatever happened: a stored login that works, and MAAS never
// given one that does not.
func (b *fixture) requireSafe() {
	b.T.Helper()
	require.False(b.T, b.rack.noLogin, "at some moment no stored login was the BMC's")
	require.False(b.T, b.rack.wrongInMAAS, "MAAS was given a login that the BMC did not take")
	require.Empty(b.T, b.Store.Moves(), "a rotation does not change the node's state")
}

func (b *fixture) made(names ...string) []string {
	var out []string
	for _, c := range b.rack.calls {
		if slices.Contains(names, c) {
			out = append(out, c)
		}
	}
	return out
}
