package sanitize

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// The steps that cleanup_storage asks of the scrub: the mounts only where a whole scrub follows,
// which would fail on what they hold busy; everything that is storage where none does.
var (
	mountSteps   = []string{"mounts"}
	storageSteps = []string{"containers", "processes", "users", "keys", "autostart", "mounts", "files", "disks"}
)

func (s *State) scrubArgs(steps []string) spec.ScrubArgs {
	return spec.ScrubArgs{
		RunID: s.Job.JobID, Serial: s.Node.Serial, Steps: steps, KeepUsers: s.Config.KeepUsers, KeepKeys: s.Config.KeepKeys,
		AllowOverwrite: s.Config.Profile.ScrubAllowOverwrite,
	}
}

func (s *State) storageTask() Task {
	steps := mountSteps
	if s.Mode == lifecycle.ModeStorageCleanup {
		steps = storageSteps
	}
	return Task{Stage: lifecycle.StageCleanupStorage, Kind: lifecycle.TaskKindScrub, Tries: &s.Tries.Storage, Args: s.scrubArgs(steps)}
}

func (s *State) scrubTask() Task {
	var steps []string
	if s.IsPXE() {
		steps = liveScrub
	}
	return Task{Stage: lifecycle.StageScrubGPU, Kind: lifecycle.TaskKindScrub, Tries: &s.Tries.Scrub, Args: s.scrubArgs(steps)}
}

func cleanStorage(ctx workflow.Context, s *State) error { return s.erase(ctx, s.storageTask()) }

func scrub(ctx workflow.Context, s *State) error { return s.erase(ctx, s.scrubTask()) }

// erase has the agent erase, and keeps the boot that it did it in: what follows
// must be another. A failure is certified too, so that it can be read device by
// device.
func (s *State) erase(ctx workflow.Context, a Task) error {
	r, err := s.runScrub(ctx, a)
	if err != nil {
		return s.certifyFailure(ctx, a.Stage, err)
	}
	s.ScrubBootID, s.Validated, s.ScrubRequired, s.AgentUnreachable = r.BootID, false, false, ""
	return nil
}

func observeStorage(ctx workflow.Context, s *State) (stage.Observation, error) {
	return s.observeErased(ctx, s.storageTask())
}

func observeScrubbed(ctx workflow.Context, s *State) (stage.Observation, error) {
	return s.observeErased(ctx, s.scrubTask())
}

func (s *State) observeErased(ctx workflow.Context, a Task) (stage.Observation, error) {
	r, err := s.ObserveTask(ctx, a)
	if err != nil || !r.OK {
		return stage.Observation{State: "not scrubbed", Note: r.Message}, err
	}
	s.ScrubBootID = r.BootID
	return stage.Observation{Done: true, State: "scrubbed", Note: "the agent has done it"}, nil
}

func (s *State) validateTask() Task {
	args := spec.ValidateArgs{
		RunID: s.Job.JobID, SKU: s.Config.SKU, Serial: s.Node.Serial, NotBootID: s.ScrubBootID, KeepUsers: s.Config.KeepUsers, KeepKeys: s.Config.KeepKeys,
	}
	if s.IsPXE() {
		args.Steps = liveValidate
	}
	return Task{Stage: lifecycle.StageValidateClean, Kind: lifecycle.TaskKindValidate, Tries: &s.Tries.Validate, Args: args}
}

// validate proves the node clean after another boot. When an operator retries the stage after a
// failed validation, it scrubs the node again first, since validating alone would fail again.
func validate(ctx workflow.Context, s *State) error {
	if s.AgentUnreachable != "" && s.IsUnmanaged() {
		return s.Certify(ctx, lifecycle.StageValidateClean) // certifies what is proven; an operator decides about the disks
	}
	if s.ScrubRequired && stage.Attempt(ctx) == 1 {
		return s.scrubAgain()
	}
	if !s.Validated {
		if err := s.ensureFreshBoot(ctx); err != nil {
			return err
		}
		if _, err := s.RunTask(ctx, s.validateTask()); err != nil {
			return s.classifyValidationFailure(ctx, err)
		}
		s.Validated = true
	}
	if s.certifiesLater() {
		return nil
	}
	return s.Certify(ctx, lifecycle.StageValidateClean)
}

// certifiesLater is set where the validation is not the last proof: in a full decommission the
// system disk is proven after it, by the release, and in the release of an allocation the firmware.
func (s *State) certifiesLater() bool {
	return s.TenantRelease || s.IsFullDecommission() && !s.IsUnmanaged()
}

// scrubAgain goes back to the first stage that erases, with new tasks. A machine
// that was installed since is released and installed once more.
func (s *State) scrubAgain() error {
	s.ScrubRequired, s.Validated = false, false
	s.Tries.Storage.Round++
	s.Tries.Scrub.Round++
	s.Tries.Validate.Round++
	if s.IsPXE() {
		return stage.GoTo(lifecycle.StageScrubGPU)
	}
	s.Release, s.Deploy = Release{}, Deployment{Attempt: s.Deploy.Attempt + 1}
	if (s.TenantRelease || s.Kind == contract.KindMachineRun) && s.Mode == lifecycle.ModeReimage {
		return stage.GoTo(lifecycle.StageLoadSite)
	}
	return stage.GoTo(lifecycle.StageCleanupStorage)
}

// health lists the steps of a validation that find a node broken, not dirty.
var health = []string{"fresh_boot", "hardware", "gpu_state", "gpu_fabric", "gpu_errors"}

// classifyValidationFailure tells a node that is not clean from one that is not sound: the evidence
// names the steps.
func (s *State) classifyValidationFailure(ctx workflow.Context, err error) error {
	switch stage.ClassOf(err) { //nolint:exhaustive // the others say nothing of what has to be erased again
	case lifecycle.FailDriveUnexpected:
		s.ScrubRequired = true // a drive that is accepted since has to be erased before it can be looked at
	case lifecycle.FailOtherMachine:
		s.ScrubRequired = true // the node's disks were elsewhere since they were erased
	}
	if stage.ClassOf(err) != lifecycle.FailNodeUnhealthy {
		return err
	}
	if cerr := s.evidence(ctx, lifecycle.StageValidateClean); cerr != nil {
		return cerr
	}
	s.ScrubRequired = slices.ContainsFunc(s.Evidence.Unproven, func(what string) bool {
		step, ok := strings.CutPrefix(what, "step "+string(lifecycle.TaskKindValidate)+"/")
		name, _, _ := strings.Cut(step, ":")
		return ok && !slices.Contains(health, name)
	})
	if !s.ScrubRequired {
		return err
	}
	return stage.Fail(lifecycle.FailScrubUnverified, "the node does not prove clean: %s", s.unprovenSummary())
}

// ensureFreshBoot sees to it that the node runs in another boot than the scrub did.
func (s *State) ensureFreshBoot(ctx workflow.Context) error {
	const at = lifecycle.StageValidateClean
	if s.IsPXE() {
		return s.ensureLiveSystem(ctx, at, s.ScrubBootID)
	}
	if err := s.ReadNode(ctx, at); err != nil {
		return err
	}
	if s.Node.BootID != s.ScrubBootID && s.Node.Agent == contract.AgentAlive {
		return nil
	}
	if err := s.powerCycle(ctx, at); err != nil {
		return err
	}
	in := nodestateact.NewBootIn{JobRef: s.Job.At(at), NotBootID: s.ScrubBootID, Poll: s.Config.Profile.PollInterval}
	f, err := stage.Do(ctx, stage.KindPoll, "wait for the agent in a fresh boot", nodeActs.WaitForNewBoot, in)
	if err == nil {
		s.RecordNode(f)
	}
	return err
}

// powerCycle switches the machine off and on: a memory overwrite and a purge that
// need a cold start get one. The BMC does it where it is known, else MAAS.
func (s *State) powerCycle(ctx workflow.Context, at string) error {
	switch {
	case s.Node.BMCID != "":
		in := bmcact.PowerIn{JobRef: s.Job.At(at), BMCID: s.Node.BMCID, CAPEM: s.Config.Site.BMCCAPEM, NotBootID: s.ScrubBootID}
		f, err := stage.Do(ctx, stage.KindBMCCall, "power cycle at the BMC", bmc.PowerCycleByBMC, in)
		if err == nil {
			s.RecordPower(f)
		}
		return err
	case s.Node.SystemID != "":
		for _, act := range []powerAct{maas.PowerOffByMAAS, maas.PowerOnByMAAS} {
			f, err := stage.Do(ctx, stage.KindBMCCall, "power cycle by MAAS", act, s.MachineIn(at))
			if err != nil {
				return err
			}
			if s.RecordPower(f); !f.Done {
				return stage.Fail(lifecycle.FailPowerNotConfirmed, "the node must restart and MAAS cannot restart it: %s; restart it by hand, then retry the stage", f.Note)
			}
		}
		return nil
	}
	return stage.Fail(lifecycle.FailPowerNotConfirmed, "the node must restart, and Slipway knows neither a BMC nor a MAAS machine of it; restart it by hand, then retry the stage")
}

type powerAct = func(context.Context, maasact.MachineIn) (contract.PowerFacts, error)

// Certify signs what was gathered and fails where it does not prove the node
// clean.
func (s *State) Certify(ctx workflow.Context, at string) error {
	if err := s.checkTenantBMC(ctx, at); err != nil {
		return err
	}
	if err := s.evidence(ctx, at); err != nil {
		return err
	}
	if len(s.Evidence.Unproven) > 0 {
		return stage.Fail(lifecycle.FailScrubUnverified, "the evidence does not prove the node clean: %s", s.unprovenSummary())
	}
	return s.unmarkMachine(ctx, at)
}

// unmarkMachine has MAAS forget the tenant of a node that is proven clean and keeps its system: the
// mark would say for ever that the node is not free. The mark of anybody else stays. An
// installation wipes it.
func (s *State) unmarkMachine(ctx workflow.Context, at string) error {
	if !s.Mode.KeepsSystem() || s.Node.SystemID == "" {
		return nil
	}
	if s.Node.LastTenancy == "" { // a mark is that of a tenant of whom the database does not know
		return nil
	}
	in := maasact.HolderIn{MachineIn: maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Node.SystemID}, AllocationID: s.Node.LastTenancy}
	_, err := stage.Do(ctx, stage.KindMAASCall, "remove the mark of the tenant in MAAS", maas.ClearAllocation, in)
	return err
}

func (s *State) evidence(ctx workflow.Context, at string) error {
	in := evidenceact.CertifyIn{JobRef: s.Job.At(at), Kind: s.Kind, Mode: s.Mode, StartedAt: s.StartedAt.Truncate(time.Microsecond), AgentUnreachable: s.AgentUnreachable, InitialDisks: s.InitialDisks, DisksRecorded: s.DisksRecorded, NotVerified: s.NotVerified, BMCChecked: s.BMCChecked}
	if s.IsPXE() {
		in.Netboot = &s.Netboot
	}
	if s.Release.Completed {
		in.Release = &s.Release.ReleaseFacts
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "sign the certificate", evidence.CertifyNode, in)
	if err == nil {
		s.Evidence = f
	}
	return err
}

// certifyFailure signs what a failed task reported; the failure is the task's.
func (s *State) certifyFailure(ctx workflow.Context, at string, err error) error {
	if class := stage.ClassOf(err); class != lifecycle.FailScrubUnverified && class != lifecycle.FailDriveMissing {
		return err
	}
	if cerr := s.evidence(ctx, at); cerr != nil {
		return cerr
	}
	return err
}

// unprovenSummary returns the first few unproven items as text for operators.
func (s *State) unprovenSummary() string {
	const most = 5
	list := s.Evidence.Unproven
	if len(list) <= most {
		return strings.Join(list, "; ")
	}
	return strings.Join(list[:most], "; ") + "; and more, see certificate " + s.Evidence.CertificateID
}

func observeValidated(ctx workflow.Context, s *State) (stage.Observation, error) {
	if !s.Validated && (s.AgentUnreachable == "" || !s.IsUnmanaged()) {
		return stage.Observation{State: "not validated"}, nil
	}
	if s.certifiesLater() {
		return stage.Observation{Done: true, State: "validated", Note: "the agent has validated the node"}, nil
	}
	if err := s.evidence(ctx, lifecycle.StageValidateClean); err != nil {
		return stage.Observation{}, err
	}
	if len(s.Evidence.Unproven) > 0 {
		return stage.Observation{State: "not verified", Note: s.unprovenSummary()}, nil
	}
	return stage.Observation{Done: true, State: "validated", Note: "certificate " + s.Evidence.CertificateID}, nil
}
