package machine

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
)

// revertSlack is how long a machine may take to restore its network after the time for the
// confirmation is over.
const revertSlack = time.Minute

// TryNetwork lets the machine try the network configuration of a step. It confirms the
// configuration over new connections to the new address, under the pinned host key. A machine that
// gets no confirmation in time restores its old configuration by itself; then TryNetwork fails with
// network_rolled_back. The machine begins an attempt once, and a repeated call continues with its
// outcome.
func (a *Activities) TryNetwork(ctx context.Context, in StepIn) (StepFacts, error) {
	s, err := a.open(ctx, in)
	t, err := openNetwork(ctx, s, err)
	if err != nil && !isRepeated(ctx, in) {
		err = MarkEnd(err, CommandUnsent)
	}
	if err != nil {
		return StepFacts{}, err
	}
	limited, cancel := context.WithTimeout(ctx, t.step.Timeout())
	defer cancel()
	state, err := t.try(limited)
	switch {
	case ctx.Err() != nil:
		return StepFacts{}, ctx.Err()
	case err != nil:
		return StepFacts{}, t.networkFailure(ctx, err)
	case state == providers.NetworkRolledBack:
		return StepFacts{}, MarkEnd(fault.New(lifecycle.FailNetworkRolledBack,
			"nobody could confirm the configuration at %s within %s, and the machine restored the one of before", t.after.target.SSH.Address, t.step.Net.Confirm()), CommandEnded)
	}
	return t.confirmed(ctx, "the machine answers with its new network configuration, which is confirmed")
}

// confirmed stores the new address of the machine, and tells of a configuration that stays.
func (t networkTry) confirmed(ctx context.Context, note string) (StepFacts, error) {
	if err := t.keepEndpoint(ctx); err != nil {
		return StepFacts{}, err
	}
	facts := t.facts("%s", note)
	facts.Moved = t.step.Net.SSHEndpoint != ""
	return facts, nil
}

// networkTry is a change of the network that is under way. after is the login of the machine at its
// new address.
type networkTry struct {
	*session
	after *session
}

func openNetwork(ctx context.Context, s *session, err error) (networkTry, error) {
	if err != nil {
		return networkTry{}, err
	}
	if s.step.Net == nil || s.adapter.Network == nil {
		return networkTry{}, s.lacks(runplan.CapNetworkConfig)
	}
	after := *s
	if to := s.step.Net.SSHEndpoint; to != "" && to != s.target.SSH.Address && !s.adapter.Simulated {
		err = after.loginAt(ctx, to, s.target.SSH.HostKey)
	}
	return networkTry{s, &after}, err
}

// try begins the change and returns how it ended.
func (t networkTry) try(ctx context.Context) (providers.NetworkState, error) {
	change := providers.NetworkChange{OpID: t.opID(""), Netplan: t.step.Net.Netplan, Confirm: t.step.Net.Confirm()}
	begun, over := false, time.Now().Add(change.Confirm+revertSlack)
	for {
		var state providers.NetworkState
		var err error
		if !begun {
			state, err = t.adapter.Network.TryNetwork(ctx, t.target, change)
			t.record(ctx, err)
			begun = err == nil
			if err != nil && !mayHaveBegun(err) {
				return state, err
			}
		}
		if state != providers.NetworkConfirmed && state != providers.NetworkRolledBack {
			state, err = t.adapter.Network.ConfirmNetwork(ctx, t.after.target, change.OpID)
			t.after.record(ctx, err)
			if err != nil && t.after.target.SSH.Address != t.target.SSH.Address {
				// The machine may have restored its network already. A change that was begun is not
				// begun again.
				state, err = t.adapter.Network.TryNetwork(ctx, t.target, change)
				t.record(ctx, err)
			}
		}
		if time.Now().After(over) && (err != nil || state == providers.NetworkPending) {
			// The machine has restored its network, or has never changed it.
			state, err = t.adapter.Network.RevertNetwork(ctx, t.target, change.OpID)
			t.record(ctx, err)
		}
		if err == nil && (state == providers.NetworkConfirmed || state == providers.NetworkRolledBack) {
			return state, nil
		}
		if perr := poll.Sleep(ctx, t.a.poll()); perr != nil {
			return state, errors.Join(perr, err)
		}
	}
}

// mayHaveBegun reports whether the outcome of a change is unknown after an error, so that it must
// be asked for again.
func mayHaveBegun(err error) bool {
	switch providers.KindOf(err) { //nolint:exhaustive // the others come before anything is changed
	case providers.KindUnreachable, providers.KindUncertain, providers.KindBusy, providers.KindProtocol:
		return true
	}
	return false
}

// networkFailure turns the error of a change into a typed failure. A machine that refused the
// change has changed nothing.
func (t networkTry) networkFailure(ctx context.Context, err error) error {
	switch kind := providers.KindOf(err); {
	case errors.Is(err, context.DeadlineExceeded):
		last := ""
		var pe *providers.Error
		if errors.As(err, &pe) {
			last = "; last: " + pe.Error()
		}
		return fault.New(lifecycle.FailCommandUncertain,
			"the machine says neither that its network configuration of before is restored nor that the new one is confirmed; it restores the one of before by itself unless the new one was confirmed, also when it is restarted%s", last)
	case kind == providers.KindInvalid, kind == providers.KindStateConflict:
		return MarkEnd(fault.New(lifecycle.FailCommand, "%s", err.Error()), CommandEnded)
	case refusesLogin(kind) && !isRepeated(ctx, t.in):
		return MarkEnd(t.failureOf(ctx, err), CommandUnsent)
	}
	return t.failureOf(ctx, err)
}

// keepEndpoint stores the new address of the machine. The machine has shown the pinned host key
// there, and the pin stays.
func (t networkTry) keepEndpoint(ctx context.Context) error {
	to := t.step.Net.SSHEndpoint
	if to == "" {
		return nil
	}
	err := t.a.Store.Tx(ctx, func(tx *db.Tx) error {
		m, err := machinesdb.Lock(ctx, tx, t.machine.ID)
		if err != nil || m.Spec.SSHEndpoint == to {
			return err
		}
		m.Spec.SSHEndpoint = to
		if m, err = machinesdb.Update(ctx, tx, m); err != nil {
			return err
		}
		return tx.AppendAudit(ctx, db.Entry{
			ResourceKind: machinesdb.Resource, ResourceID: m.ID, NodeID: m.NodeID, Kind: db.EntryAction, Name: "move_machine",
			Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: t.in.JobID, Metadata: map[string]any{"run_id": t.in.RunID, "ssh_endpoint": to}},
		})
	})
	return fault.Internal(ctx, err)
}

// RevertNetwork lets the machine restore its network configuration from before an attempt, unless
// the attempt was confirmed. It repeats the call while the machine does not answer, until the time
// at which the machine has restored it by itself. A confirmed configuration stays, with the new
// address in the record of the machine.
//
// An address that refuses the login may belong to another host by now. It is asked no more, and the
// other address still is. After that time a refused login ends the undo with a note.
func (a *Activities) RevertNetwork(ctx context.Context, in StopIn) (StepFacts, error) {
	s, err := a.openToUndo(ctx, in.StepIn)
	t, err := openNetwork(ctx, s, err)
	if err != nil {
		return StepFacts{}, err
	}
	ask := []*session{t.session}
	if t.after.target.SSH.Address != t.target.SSH.Address {
		ask = append(ask, t.after)
	}
	var refused error // of an address that is asked no more
	says := "the machine does not answer"
	for {
		var again []*session
		for _, s := range ask {
			state, err := s.adapter.Network.RevertNetwork(ctx, s.target, s.opID(""))
			s.record(ctx, err)
			switch {
			case ctx.Err() != nil:
				return StepFacts{}, ctx.Err()
			case err == nil && state == providers.NetworkConfirmed:
				return t.confirmed(ctx, "the new network configuration of the machine was confirmed before, and stays")
			case err == nil && state != providers.NetworkPending:
				return t.facts("the change of the network is %s", state), nil
			case err != nil && refusesLogin(providers.KindOf(err)):
				refused = err
				continue
			case err == nil:
				says = "the change of the network is " + string(state)
			case providers.IsKind(err, providers.KindStateConflict): // it cannot do that yet
				says = err.Error()
			case !mayHaveBegun(err):
				return StepFacts{}, t.failureOf(ctx, err)
			}
			again = append(again, s)
		}
		ask = again
		switch over := !time.Now().Before(in.EndsBy); {
		case over && refused != nil:
			return t.facts("a login was refused (%s); the machine restores its network by itself unless the new one was confirmed", refused), nil
		case over:
			return t.facts("%s; it restores its network by itself unless the new one was confirmed", says), nil
		case len(ask) == 0:
			return StepFacts{}, t.failureOf(ctx, refused)
		}
		if err := poll.Sleep(ctx, a.poll()); err != nil {
			return StepFacts{}, err
		}
	}
}
