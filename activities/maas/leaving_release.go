package maas

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// ReadMachineBeforeRelease reads the machine, its disks and the number of its newest
// event, by which the events of the release are told from older ones. A machine
// that is not this node's any more is refused; an absent one is nothing to
// release. Read-only.
func (a *Activities) ReadMachineBeforeRelease(ctx context.Context, in MachineIn) (contract.ReleaseFacts, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.ReleaseFacts{}, err
	}
	got, err := m.Machine(ctx, in.SystemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return contract.ReleaseFacts{MachineFacts: goneFacts(in.SystemID)}, nil
	}
	if err != nil {
		return contract.ReleaseFacts{}, fault.MAAS(ctx, err)
	}
	out := contract.ReleaseFacts{MachineFacts: facts(got)}
	if err := a.belongs(ctx, m, in, got); err != nil {
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

func goneFacts(systemID string) contract.MachineFacts {
	return contract.MachineFacts{SystemID: systemID, Status: providers.MAASAbsent, Done: true, Note: "the machine is not in MAAS"}
}

// EraseAndReleaseIn is the input of EraseAndRelease.
type EraseAndReleaseIn struct {
	MachineIn
	// AfterEvent is the newest event from before the release.
	AfterEvent int `json:"after_event"`
	// Begun is set once this job set out to release the machine.
	Begun bool `json:"begun,omitempty"`
	// Next is the attempt of this job's deployment that follows the release; 0 for
	// none. A machine that carries its mark has been released.
	Next int `json:"next,omitempty"`
	// Fallback lets the machine go without erasing when erasing fails
	// (release_fallback_no_erase of the profile).
	Fallback bool `json:"fallback,omitempty"`
	// EraseUntil is when erasing disks is given up: MAAS has no limit of its own
	// (research, maas fact 9).
	EraseUntil time.Time `json:"erase_until"`
}

// EraseAndRelease releases the machine with its disks erased and waits until it is
// free: Ready, or New where MAAS never commissioned it. Absent and free already
// are success; whether the disks were erased is said by Erased alone. A
// repetition reads first and takes up the release that is under way.
func (a *Activities) EraseAndRelease(ctx context.Context, in EraseAndReleaseIn) (contract.ReleaseFacts, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.ReleaseFacts{}, err
	}
	got, err := m.Machine(ctx, in.SystemID)
	if providers.IsKind(err, providers.KindNotFound) {
		return contract.ReleaseFacts{MachineFacts: goneFacts(in.SystemID)}, nil
	}
	if err != nil {
		return contract.ReleaseFacts{}, fault.MAAS(ctx, err)
	}
	if free(got.Status) && !in.Begun {
		out := contract.ReleaseFacts{MachineFacts: facts(got)}
		out.Done, out.Note = true, "somebody else released the machine; whether its disks were erased is not known"
		return out, nil
	}
	r := &releasing{a: a, m: m, in: in}
	if in.Next > 0 && got.Annotations[annotationJob] == in.JobID && got.Annotations[annotationAttempt] == strconv.Itoa(in.Next) {
		// Released before, and deployed anew since: releasing clears marks.
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
	got, err = poll(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error { return r.look(ctx, got) })
	out := contract.ReleaseFacts{MachineFacts: facts(got), Fallback: r.fallback}
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

// releasing is one release on its way.
type releasing struct {
	a  *Activities
	m  providers.MAAS
	in EraseAndReleaseIn

	erase, plain, abort once
	passed              bool // MAAS went from erasing to releasing
	erasing             bool
	fallback            string
}

// look does the one next thing.
func (r *releasing) look(ctx context.Context, got providers.MAASMachine) error {
	if r.erasing && (got.Status == providers.MAASReleasing || free(got.Status)) {
		r.passed = true
	}
	r.erasing = got.Status == providers.MAASDiskErasing
	switch {
	case free(got.Status):
		return nil
	case got.Status == providers.MAASDiskErasing:
		return r.bounded(ctx)
	case got.Status == providers.MAASReleasing:
		return errKeepWaiting
	case got.Status == providers.MAASFailedDiskErasing:
		return r.notErased(ctx, got)
	case got.Status == providers.MAASReleasingFailed:
		return r.notOff(ctx)
	case !releasable(got.Status):
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s, from which MAAS releases nothing; bring it out of that state in MAAS", r.in.SystemID, got.Status)
	}
	if err := r.a.belongs(ctx, r.m, r.in.MachineIn, got); err != nil {
		return err
	}
	return r.send(ctx, &r.erase, true)
}

func (r *releasing) send(ctx context.Context, o *once, erase bool) error {
	err := o.send(ctx, func() error {
		return r.m.Release(ctx, r.in.SystemID, providers.MAASRelease{Erase: erase, SecureErase: erase, Comment: "slipway " + r.in.JobID})
	})
	if err != nil {
		return err
	}
	return errKeepWaiting
}

// bounded gives erasing its time and no more.
func (r *releasing) bounded(ctx context.Context) error {
	if time.Now().Before(r.in.EraseUntil) {
		return errKeepWaiting
	}
	err := r.abort.send(ctx, func() error { return r.m.Abort(ctx, r.in.SystemID, "slipway "+r.in.JobID+": erasing did not end") })
	if err != nil {
		return err
	}
	return errKeepWaiting
}

// notErased: erasing failed, or was given up. It is tried once by each execution
// that finds it so, unless this one has just tried or given up.
func (r *releasing) notErased(ctx context.Context, got providers.MAASMachine) error {
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
		return fault.New(lifecycle.FailScrubUnverified, "machine %s: %s%s; mend or replace the disk and retry the stage", r.in.SystemID, why, saying(got))
	}
	if err := r.a.belongs(ctx, r.m, r.in.MachineIn, got); err != nil {
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

// notOff: the machine could not be powered off for its release. What is erased
// by then is not erased again.
func (r *releasing) notOff(ctx context.Context) error {
	if r.plain.taken {
		return fault.New(lifecycle.FailPowerNotConfirmed, "machine %s could not be powered off for its release", r.in.SystemID)
	}
	erased, err := r.erased(ctx)
	if err != nil {
		return err
	}
	return r.send(ctx, &r.plain, !erased)
}

// erased asks MAAS's events whether the disks were erased in this release.
func (r *releasing) erased(ctx context.Context) (bool, error) {
	if r.passed {
		return true, nil
	}
	events, err := r.m.Events(ctx, r.in.SystemID, "INFO", releaseEvents)
	if err != nil {
		return false, fault.MAAS(ctx, fmt.Errorf("events of %s: %w", r.in.SystemID, err))
	}
	return slices.ContainsFunc(events, func(e providers.MAASEvent) bool {
		return e.ID > r.in.AfterEvent && e.Type == "Disks erased"
	}), nil
}

// releaseEvents is more than one release leaves.
const releaseEvents = 200
