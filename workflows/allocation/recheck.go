package allocation

import (
	"cmp"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// recheckAfter is how long a machine counts as off after it was read off.
const recheckAfter = time.Minute

// offNotice is what the message of a failure says, and with it the line of the parked job in the
// attention list.
const offNotice = "the tenant's access was ended by cutting the power alone: keep the machine off, since nothing reads its power until the job goes on"

// readOff stores that the machine was read off.
func (s *ReleaseState) readOff(ctx workflow.Context) {
	now := workflow.Now(ctx)
	s.OffAt = &now
}

// restsOnPower reports whether the tenant's system is still there and only the power keeps him out.
func (s *ReleaseState) restsOnPower() bool {
	return s.OffAt != nil && !s.Cleaning.Release.Completed
}

// whileOff runs a stage for which the tenant has to stay out. A machine that was switched on while
// the job was parked is switched off again first, and its tenant may have been in. A failure says
// that only the power keeps him out.
func whileOff(at string, run func(workflow.Context, *ReleaseState) error) func(workflow.Context, *ReleaseState) error {
	return func(ctx workflow.Context, s *ReleaseState) error {
		if err := s.recheckPower(ctx, at); err != nil {
			return err
		}
		err := run(ctx, s)
		if s.restsOnPower() {
			err = stage.Explain(err, cmp.Or(s.leaveOff(ctx, at, err), offNotice))
		}
		return err
	}
}

// leaveOff switches the machine off after a failure, where MAAS had switched it on to erase its
// disks: it may have started the tenant's system. It returns what an operator has to know when
// nothing reads it off, "" otherwise.
func (s *ReleaseState) leaveOff(ctx workflow.Context, at string, failure error) string {
	if failure == nil || stage.Unfinished(failure) || !s.EraseAsked || s.isMAASErasing(ctx, at) {
		return ""
	}
	proof, why := s.cutPower(ctx, at, defaultRevokeLimit)
	if proof == "" {
		return "MAAS had switched the machine on to erase it, and the tenant's system may run: switch it off; " + why
	}
	s.readOff(ctx)
	return ""
}

// recheckPower reads the power again, where it was read off too long ago. It fails with
// access_unconfirmed when nothing reads the machine off.
func (s *ReleaseState) recheckPower(ctx workflow.Context, at string) error {
	if !s.restsOnPower() || workflow.Now(ctx).Sub(*s.OffAt) < recheckAfter || s.isMAASErasing(ctx, at) {
		return nil
	}
	if id := s.Cleaning.Node.BMCID; id != "" {
		in := bmcact.PowerIn{JobRef: s.Job.At(at), BMCID: id, CAPEM: s.Cleaning.Config.Site.BMCCAPEM}
		in.ObserveOnly = true
		if f, err := stage.Do(ctx, stage.KindBMCCall, "read the power again", bmc.PowerOffByBMC, in); err == nil && f.State == "off" {
			s.readOff(ctx)
			return nil
		}
	}
	since := s.OffAt.UTC().Format(time.RFC3339)
	proof, why := s.cutPower(ctx, at, defaultRevokeLimit)
	if proof == "" {
		return stage.Fail(lifecycle.FailAccessUnconfirmed,
			"the machine was read off at %s, which ended the tenant's access, and nothing reads it off now: %s", since, why)
	}
	s.readOff(ctx)
	return s.endAccess(ctx, at, lifecycle.AccessRevoked, "switched off again, since nothing had read the machine off since "+since+": "+proof)
}

// isMAASErasing reports whether the power of the machine is MAAS's: it has it boot to erase its
// disks. A region that does not answer is asked by the stage itself.
func (s *ReleaseState) isMAASErasing(ctx workflow.Context, at string) bool {
	if !s.EraseAsked || s.Cleaning.Node.SystemID == "" {
		return false
	}
	m, err := stage.Do(ctx, stage.KindMAASCall, "ask who has the machine", maas.ObserveMachine,
		maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Cleaning.Node.SystemID})
	return err != nil || m.Status != "Deployed" && !strings.Contains(strings.ToLower(m.Status), "failed")
}
