// Package machineprobe asks machines that are linked to no node whether their SSH server and their
// BMC answer, for the conditions Reachable and BMCReachable. It logs in nowhere. Any number of
// workers run it; a machine is probed by one of them at a time.
package machineprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	defaultEvery = 5 * time.Minute
	defaultLimit = 10 * time.Second
	// pause is how long a worker waits after it has found too few machines that are due.
	pause = 5 * time.Second
	// atOnce is how many machines of those that answered last, and of the others, one worker probes
	// at a time.
	atOnce = 16
	// storeLimit bounds each question to the database and the secret store.
	storeLimit = 10 * time.Second
)

// Passes probes the machines of an installation.
type Passes struct {
	Store    *db.Store
	Secrets  providers.Secrets
	Adapters providers.MachineAdapters
	BMCs     map[string]providers.BMCOpener // by protocol
	Log      *slog.Logger
	// Every is how often a machine is probed at most; 0 is 5 min.
	Every time.Duration
	// Limit bounds the probe of an SSH server, and that of a BMC; 0 is 10 s.
	Limit time.Duration
}

// Run probes machines until ctx ends. Those that gave no answer last are probed apart from the
// others, which they do not delay.
func (p *Passes) Run(ctx context.Context) {
	var kinds sync.WaitGroup
	for _, silent := range []bool{false, true} {
		kinds.Go(func() {
			poll.Repeat(ctx, pause, p.Log, "not every machine was probed; will try again", func(ctx context.Context) error { return p.probeDue(ctx, silent) })
		})
	}
	kinds.Wait()
}

// Look probes each machine that is due.
func (p *Passes) Look(ctx context.Context) error {
	return errors.Join(p.probeDue(ctx, false), p.probeDue(ctx, true))
}

// probeDue probes each machine that is due, of those that answered last or of those that did not.
// Its error says of how many nothing is known for a reason of our own, with the reason of the
// first.
func (p *Passes) probeDue(ctx context.Context, silent bool) error {
	failed, total := error(nil), 0
	for ctx.Err() == nil {
		due, err := machinesdb.ClaimProbes(ctx, p.Store, cmp.Or(p.Every, defaultEvery), silent, atOnce)
		if err != nil {
			return err
		}
		errs := make([]error, len(due))
		var probes sync.WaitGroup
		for i, m := range due {
			probes.Go(func() { errs[i] = p.probe(ctx, m) })
		}
		probes.Wait()
		for i, err := range errs {
			if err == nil {
				continue
			}
			if total++; failed == nil {
				failed = fmt.Errorf("machine %s: %w", due[i].ID, err)
			}
		}
		if len(due) < atOnce {
			break
		}
	}
	if failed != nil {
		return fmt.Errorf("%d machines could not be probed, the first: %w", total, failed)
	}
	return nil
}

// probe probes a machine and stores what was found. When the process ends meanwhile, nothing is
// stored.
func (p *Passes) probe(ctx context.Context, m machinesdb.Machine) error {
	var facts lifecycle.ProbeFacts
	var sshErr, bmcErr error
	adapter, err := p.Adapters.For(m.Spec.Provider)
	if err == nil && !adapter.Simulated && m.SiteID != nil { // the networks of the site hold for both
		var both sync.WaitGroup
		both.Go(func() { facts.SSH, sshErr = p.probeSSH(ctx, adapter.HostProbe, m) })
		both.Go(func() { facts.BMC, bmcErr = p.probeBMC(ctx, m) })
		both.Wait()
	}
	if ctx.Err() != nil {
		return nil // another worker probes the machine when it is due
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeLimit)
	defer cancel()
	return errors.Join(sshErr, bmcErr, p.Store.Tx(sctx, func(tx *db.Tx) error {
		return machines.StoreProbes(sctx, tx, m, facts, time.Now())
	}))
}

// probeSSH verifies the host key of a machine. Without a pinned key nobody knows which machine
// answers, and no run logs in to it.
func (p *Passes) probeSSH(ctx context.Context, host providers.HostProbe, m machinesdb.Machine) (lifecycle.ProbeResult, error) {
	if host == nil || m.Spec.SSHEndpoint == "" || m.HostKey == "" {
		return lifecycle.ProbeUnknown, nil
	}
	return p.ask(ctx, spec.SecretSSHKey, m, m.Spec.SSHEndpoint, func(ctx context.Context, rule spec.AddressRule) error {
		return host.VerifyHost(ctx, providers.SSHTarget{Address: m.Spec.SSHEndpoint, HostKey: m.HostKey, Rule: rule, HandshakeTimeout: p.limit()})
	})
}

// probeBMC reads what the BMC of a machine shows to everybody.
func (p *Passes) probeBMC(ctx context.Context, m machinesdb.Machine) (lifecycle.ProbeResult, error) {
	if m.Spec.BMCEndpoint == "" {
		return lifecycle.ProbeUnknown, nil
	}
	opener := p.BMCs[intent.ProtocolOfBMC(m.Spec.BMCEndpoint)]
	return p.ask(ctx, spec.SecretBMCLogin, m, m.Spec.BMCEndpoint, func(ctx context.Context, rule spec.AddressRule) error {
		_, err := providers.ProbeBMC(ctx, opener, providers.BMCTarget{Address: m.Spec.BMCEndpoint, Rule: rule})
		return err
	})
}

func (p *Passes) limit() time.Duration { return cmp.Or(p.Limit, defaultLimit) }

// ask probes an address that the networks of the machine's site allow, within a deadline.
func (p *Passes) ask(ctx context.Context, kind spec.SecretKind, m machinesdb.Machine, address string, probe func(context.Context, spec.AddressRule) error) (lifecycle.ProbeResult, error) {
	rctx, cancel := context.WithTimeout(ctx, storeLimit)
	rule, err := p.Secrets.AddressRule(rctx, "", providers.Use{Kind: kind, Site: *m.SiteID, Address: address})
	cancel()
	if err != nil {
		return lifecycle.ProbeUnknown, err // nothing was sent
	}
	pctx, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	return resultOf(probe(pctx, rule))
}

// resultOf returns what the error of a probe says of the machine. An error is returned where it
// says nothing.
func resultOf(err error) (lifecycle.ProbeResult, error) {
	switch kind := providers.KindOf(err); {
	case err == nil:
		return lifecycle.ProbeAnswered, nil
	case kind == "", kind == providers.KindInvalid, isOwnFailure(err):
		return lifecycle.ProbeUnknown, err
	case kind == providers.KindPinMismatch:
		return lifecycle.ProbeOtherKey, nil
	}
	return lifecycle.ProbeSilent, nil
}

// isOwnFailure reports whether this process could not have reached any machine.
func isOwnFailure(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL,
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
