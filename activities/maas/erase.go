package maas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// ReadMachineBeforeRelease reads the machine, its disks and the number of its newest event, which
// tells the events of the release from older ones. It fails when the machine does not belong to the
// node any more. An absent machine needs no release. Read-only.
func (a *Activities) ReadMachineBeforeRelease(ctx context.Context, in MachineIn) (contract.ReleaseFacts, error) {
	m, found, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.ReleaseFacts{}, err
	}
	if found == nil {
		return contract.ReleaseFacts{MachineFacts: absentFacts(in.SystemID, notInMAAS)}, nil
	}
	got := *found
	out := contract.ReleaseFacts{MachineFacts: facts(got)}
	if err := a.checkBelongs(ctx, m, in, got); err != nil {
		return out, err
	}
	disks, err := m.BlockDevices(ctx, in.SystemID)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	for _, d := range disks {
		if d.Type == "physical" {
			out.Disks = append(out.Disks, lifecycle.DeviceResult{Name: d.Name, Serial: d.Serial, Model: d.Model})
		}
	}
	events, err := m.Events(ctx, in.SystemID, "DEBUG", 1)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	if len(events) > 0 {
		out.LastEvent = events[0].ID
	}
	return out, nil
}

// EraseAndReleaseIn is the input of EraseAndRelease.
type EraseAndReleaseIn struct {
	MachineIn
	// AfterEvent is the newest event from before the release.
	AfterEvent int `json:"after_event"`
	// ReleaseStarted is set when this job has begun to release the machine.
	ReleaseStarted bool `json:"release_started,omitempty"`
	// NextAttempt is the attempt of this job's deployment that follows the release, 0 for none. A
	// machine that is annotated with it has been released.
	NextAttempt int `json:"next_attempt,omitempty"`
	// Fallback releases the machine without erasing when erasing fails (release_fallback_no_erase
	// of the profile).
	Fallback bool `json:"fallback,omitempty"`
	// EraseUntil is when erasing is aborted: MAAS has no limit of its own.
	EraseUntil time.Time `json:"erase_until"`
}

// EraseAndRelease releases the machine with its disks erased, and waits until it is Ready, or New
// when MAAS never commissioned it. It succeeds when the machine is absent or released already. Only
// Erased says whether the disks were erased. A repetition continues a release that is under way.
func (a *Activities) EraseAndRelease(ctx context.Context, in EraseAndReleaseIn) (contract.ReleaseFacts, error) {
	m, found, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.ReleaseFacts{}, err
	}
	if found == nil {
		return contract.ReleaseFacts{MachineFacts: absentFacts(in.SystemID, notInMAAS)}, a.forgetAddresses(ctx, in.JobRef)
	}
	got := *found
	if free(got.Status) && !in.ReleaseStarted {
		out := contract.ReleaseFacts{MachineFacts: facts(got)}
		out.Done, out.Note = true, "somebody else released the machine; whether its disks were erased is not known"
		return out, nil
	}
	r := &eraseAndRelease{a: a, m: m, in: in}
	if in.NextAttempt > 0 && got.Annotations[annotationJob] == in.JobID && got.Annotations[annotationAttempt] == strconv.Itoa(in.NextAttempt) {
		// Released before, and deployed again since: a release clears annotations.
		out := contract.ReleaseFacts{MachineFacts: facts(got)}
		out.Done, out.Note = true, "released before; this job has deployed the machine since"
		out.Erased, err = r.erased(ctx)
		return out, err
	}
	if in.ObserveOnly {
		out := contract.ReleaseFacts{MachineFacts: facts(got)}
		out.Done = free(got.Status)
		out.Erased, err = r.erased(ctx)
		return out, err
	}
	got, err = pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error { return r.step(ctx, got) })
	out := contract.ReleaseFacts{MachineFacts: facts(got), Fallback: r.fallback}
	if err == nil {
		err = a.forgetAddresses(ctx, in.JobRef)
	}
	if err != nil {
		return out, err
	}
	if out.Erased, err = r.erased(ctx); err != nil {
		return out, err
	}
	out.Done = true
	switch {
	case out.Erased:
		out.Fallback, out.Note = "", "released, disks erased"
	case out.Fallback == "" && in.Fallback:
		out.Fallback = "MAAS released the machine without saying that it erased the disks, which the profile allows"
		out.Note = out.Fallback
	default:
		out.Note = cmp.Or(out.Fallback, "released; MAAS did not say that it erased the disks")
	}
	return out, nil
}

func free(s providers.MAASStatus) bool { return s == providers.MAASReady || s == providers.MAASNew }

// eraseAndRelease is one release that is under way.
type eraseAndRelease struct {
	a  *Activities
	m  providers.MAAS
	in EraseAndReleaseIn

	erase, plain, abort once
	passed              bool // MAAS went from erasing to releasing
	erasing             bool
	fallback            string
}

// step sends the next request that the machine's status calls for. It returns nil when the machine
// is released.
func (r *eraseAndRelease) step(ctx context.Context, got providers.MAASMachine) error {
	if r.erasing && (got.Status == providers.MAASReleasing || free(got.Status)) {
		r.passed = true
	}
	r.erasing = got.Status == providers.MAASDiskErasing
	switch {
	case free(got.Status):
		return nil
	case got.Status == providers.MAASDiskErasing:
		return r.waitForErase(ctx)
	case got.Status == providers.MAASReleasing:
		return errKeepWaiting
	case got.Status == providers.MAASFailedDiskErasing:
		return r.handleEraseFailure(ctx, got)
	case got.Status == providers.MAASReleasingFailed:
		return r.handlePowerOffFailure(ctx)
	case !releasable(got.Status):
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s, from which MAAS releases nothing; bring it out of that state in MAAS", r.in.SystemID, got.Status)
	}
	if err := r.a.checkBelongs(ctx, r.m, r.in.MachineIn, got); err != nil {
		return err
	}
	return r.send(ctx, &r.erase, true)
}

// checkProtected refuses to erase a machine of which drives are protected, since MAAS erases all.
func (a *Activities) checkProtected(ctx context.Context, nodeID string) error {
	protected, err := a.Store.ProtectedSerials(ctx, nodeID)
	var invalid *spec.InvalidError
	switch {
	case errors.As(err, &invalid):
		return fault.New(lifecycle.FailConfiguration, "what protects drives of the node cannot be read, so that MAAS is not asked to erase them: %s", invalid)
	case err != nil:
		return fault.Internal(ctx, err)
	case len(protected) == 0:
		return nil
	}
	root, err := a.Store.HoldsRootTenant(ctx, nodeID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	return fault.New(lifecycle.FailConfiguration, "%s", lifecycle.ProtectedFromRelease(protected, !root))
}

// checkRelease refuses to release a machine of which drives are protected where the region erases
// the disks of every machine that it releases, or does not say whether it does.
func (a *Activities) checkRelease(ctx context.Context, m providers.MAAS, nodeID string) error {
	refused := a.checkProtected(ctx, nodeID)
	if refused == nil {
		return nil
	}
	info, err := m.Probe(ctx)
	if err != nil {
		return fault.MAAS(ctx, err)
	}
	if info.Config["enable_disk_erasing_on_release"] == "false" {
		return nil
	}
	return refused
}

func (r *eraseAndRelease) send(ctx context.Context, o *once, erase bool) error {
	var err error
	if erase {
		err = r.a.checkProtected(ctx, r.in.NodeID)
	} else {
		err = r.a.checkRelease(ctx, r.m, r.in.NodeID)
	}
	if err != nil {
		return err
	}
	err = o.send(ctx, func() error {
		return r.m.Release(ctx, r.in.SystemID, providers.MAASRelease{Erase: erase, SecureErase: erase, Comment: "slipway " + r.in.JobID})
	})
	if err != nil {
		return err
	}
	return errKeepWaiting
}

// waitForErase waits until EraseUntil and then aborts.
func (r *eraseAndRelease) waitForErase(ctx context.Context) error {
	if time.Now().Before(r.in.EraseUntil) {
		return errKeepWaiting
	}
	err := r.abort.send(ctx, func() error { return r.m.Abort(ctx, r.in.SystemID, "slipway "+r.in.JobID+": erasing did not end") })
	if err != nil {
		return err
	}
	return errKeepWaiting
}

// handleEraseFailure handles an erasure that failed or was aborted. Each execution tries it once
// more, unless this one has just tried or aborted it.
func (r *eraseAndRelease) handleEraseFailure(ctx context.Context, got providers.MAASMachine) error {
	why := "MAAS failed to erase the disks"
	if r.abort.taken || !time.Now().Before(r.in.EraseUntil) {
		why = "erasing the disks did not end in time and was aborted"
	}
	tried := r.erase.taken || r.abort.taken || !time.Now().Before(r.in.EraseUntil)
	switch {
	case tried && r.in.Fallback:
		r.fallback = why + "; released without erasing, as the profile allows"
		return r.send(ctx, &r.plain, false)
	case tried:
		return fault.New(lifecycle.FailScrubUnverified, "machine %s: %s%s; fix or replace the disk and retry the stage", r.in.SystemID, why, saying(got))
	}
	if err := r.a.checkBelongs(ctx, r.m, r.in.MachineIn, got); err != nil {
		return err
	}
	return r.send(ctx, &r.erase, true)
}

func saying(got providers.MAASMachine) string {
	if got.StatusMessage == "" {
		return ""
	}
	return " (" + got.StatusMessage + ")"
}

// handlePowerOffFailure releases a machine once more that could not be powered off. It does not
// erase disks again that are erased by then.
func (r *eraseAndRelease) handlePowerOffFailure(ctx context.Context) error {
	if r.plain.taken {
		return fault.New(lifecycle.FailPowerNotConfirmed, "machine %s could not be powered off for its release", r.in.SystemID)
	}
	erased, err := r.erased(ctx)
	if err != nil {
		return err
	}
	return r.send(ctx, &r.plain, !erased)
}

// erased reads from MAAS's events whether the disks were erased in this release. Not every version
// of MAAS writes an event of that, so that a machine which was seen to go from erasing to releasing
// counts too, unless MAAS's history says that it did not: between two looks the erasing may have
// failed, and another execution or an operator may have released the machine without erasing.
func (r *eraseAndRelease) erased(ctx context.Context) (bool, error) {
	events, err := r.events(ctx, "INFO")
	if err != nil || slices.ContainsFunc(events, func(e providers.MAASEvent) bool { return e.Type == "Disks erased" }) {
		return err == nil, err
	}
	if !r.passed {
		return false, nil
	}
	if events, err = r.events(ctx, "DEBUG"); err != nil {
		return false, err
	}
	known := false
	for _, e := range events {
		if e.Type != "Node changed status" || !strings.HasSuffix(e.Description, "to 'Releasing'") {
			continue
		}
		if known = true; strings.HasPrefix(e.Description, "From 'Disk erasing'") {
			return true, nil
		}
	}
	return !known, nil
}

// events returns the events of this release.
func (r *eraseAndRelease) events(ctx context.Context, level string) ([]providers.MAASEvent, error) {
	events, err := r.m.Events(ctx, r.in.SystemID, level, releaseEvents)
	if err != nil {
		return nil, fault.MAAS(ctx, fmt.Errorf("events of %s: %w", r.in.SystemID, err))
	}
	return slices.DeleteFunc(events, func(e providers.MAASEvent) bool { return e.ID <= r.in.AfterEvent }), nil
}

// releaseEvents is more than one release leaves.
const releaseEvents = 200
