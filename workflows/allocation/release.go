package allocation

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// ReleaseState is what a release knows; it is checkpointed with each projection.
type ReleaseState struct {
	Job     contract.JobRef          `json:"job"`
	Request contract.AllocationInput `json:"request"`
	Facts   contract.AllocationFacts `json:"facts,omitzero"`
	// Begun is set once Cleaning was made; it holds what the stages know that make the node clean.
	Begun    bool               `json:"begun,omitempty"`
	Cleaning sanitize.State     `json:"cleaning,omitzero"`
	Revoke   contract.TaskTries `json:"revoke,omitzero"`
	// Access is lifecycle.AccessRevoked once the tenant's access is proven to have ended, by
	// AccessProof.
	Access      string `json:"access,omitempty"`
	AccessProof string `json:"access_proof,omitempty"`
	// OffAt is when the machine was last read off, where that alone is the proof.
	OffAt *time.Time `json:"off_at,omitempty"`
	// EraseAsked is set once MAAS was asked to erase the machine, so that its power is MAAS's.
	EraseAsked bool                   `json:"erase_asked,omitempty"`
	Settings   contract.SettingsFacts `json:"settings,omitzero"`
	// Rotated is set once the BMC takes another password than the tenant may have learnt.
	Rotated bool `json:"rotated,omitempty"`
}

// Release is the workflow that takes a node back.
func Release(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, ReleaseJob(in), in)
}

// ReleaseJob is the release for one input. It only goes forward: it parks where a stage has spent
// its tries, with the allocation in release_failed, and goes on from there.
func ReleaseJob(in contract.JobInput) stage.Job[ReleaseState] {
	return stage.Job[ReleaseState]{
		Kind:   contract.KindAllocationRelease,
		Stages: releaseStages(),
		Init: func(s *ReleaseState, input []byte) error {
			s.Job = in.Ref()
			return decode(in, input, &s.Request)
		},
		NodeID: func(s *ReleaseState) string { return s.Job.NodeID },
		Deadline: func(s *ReleaseState, name string, dflt time.Duration) time.Duration {
			return s.Cleaning.Config.Profile.StageDeadline(name, dflt)
		},
		Observed: releaseObserved,
		Metadata: func(s *ReleaseState) lifecycle.ActionMetadata { return s.Cleaning.Machine.ActionMetadata() },
		Moves:    releaseMove,
		Parked:   releaseParked,
		Attempts: releaseAttempts,
		Subject:  releaseSubject,
	}
}

func releaseObserved(s *ReleaseState) lifecycle.Observed {
	o := observed(s.Cleaning.Node, s.Cleaning.Machine)
	if s.Cleaning.LastPower != "" {
		o.Power = s.Cleaning.LastPower
	}
	return o
}

// releaseSubject reads whether the allocation has ended, where that decides: only then a release
// may be cancelled.
func releaseSubject(ctx workflow.Context, s *ReleaseState, a lifecycle.Action) contract.SubjectFacts {
	if a != lifecycle.ActionCancel {
		return contract.SubjectFacts{}
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "has the allocation ended", allocs.ReadAllocation, s.ref(""))
	return contract.SubjectFacts{Ended: err == nil && lifecycle.Allocation.Terminal(f.Status)}
}

// releaseAttempts returns how often a stage is tried: at least as often as the policy says when its
// failure may end by itself.
func releaseAttempts(s *ReleaseState, class lifecycle.FailureClass, dflt int) int {
	if lifecycle.Failure(class).Manual {
		return dflt
	}
	return max(dflt, s.Facts.MaxDeliver)
}

// releaseMove is what happens to the allocation with the job. A parked job is a failed release, a
// job that goes on is another attempt.
func releaseMove(s *ReleaseState, at contract.Step) *contract.Move {
	var m contract.AllocationMove
	switch at.Entered { //nolint:exhaustive // the others leave it where it is
	case lifecycle.JobRunning:
		m.To = lifecycle.AllocationReleasing
	case lifecycle.JobFailedRetryable, lifecycle.JobFailedManual:
		m.To = lifecycle.AllocationReleaseFailed
		if f := at.Failure; f != nil {
			m.FailureClass, m.FailureStage = f.Class, f.Stage
		}
	case lifecycle.JobCompleted, lifecycle.JobReconciled:
		m.To, m.CertificateID = lifecycle.AllocationReleased, s.Cleaning.Evidence.CertificateID
	default:
		return nil
	}
	return m.Move(s.Request.AllocationID)
}

// proven reports that the certificate proves the node clean.
func (s *ReleaseState) proven() bool {
	return s.Cleaning.IsProven()
}

// releaseParked keeps a node from everybody else that may not be clean, or that its tenant may
// still use. While another job has the node, that one keeps it.
func releaseParked(s *ReleaseState, f contract.Failure) *contract.Move {
	if !lifecycle.Failure(f.Class).NodeUnsafe || s.Job.NodeID == "" {
		return nil
	}
	return quarantine("the release of its allocation is blocked at " + f.Stage + ": " + f.Message)
}

func (s *ReleaseState) ref(at string) contract.AllocationRef {
	return contract.AllocationRef{JobRef: s.Job.At(at), AllocationID: s.Request.AllocationID}
}

func releaseStages() []stage.Stage[ReleaseState] {
	own := []stage.Stage[ReleaseState]{
		{Name: lifecycle.StageCloseTerminals, Weight: 1, Deadline: shortDeadline, Run: closeTerminals,
			Doc: "read the allocation and its node, and close the tenant's terminals: there are none yet"},
		{Name: lifecycle.StageRevokeAccess, Weight: 3, Deadline: 30 * time.Minute, DeadlineClass: lifecycle.FailAccessUnconfirmed, Waits: true, Run: revokeAccess,
			Doc: "end the tenant's access and prove it from outside; without a proof in time the machine's power is cut"},
		{Name: lifecycle.StageStopUsage, Weight: 1, Deadline: shortDeadline, Run: whileOff(lifecycle.StageStopUsage, stopUsage),
			Doc: "end what the tenant is charged"},
		{Name: lifecycle.StageDetachStorage, Weight: 1, Deadline: shortDeadline, Run: whileOff(lifecycle.StageDetachStorage, detachStorage),
			Doc: "detach the tenant's storage: there is none yet"},
	}
	load := sanitize.LoadSite()
	load.Skip = nil // a missing machine is a failure here
	own = append(own, cleaning(load, systemStays), cleaning(sanitize.ReleaseMAAS(), systemStays), cleaning(sanitize.CleanupStorage(), systemIsNew),
		cleaning(sanitize.ScrubGPU(), nil), cleaning(sanitize.ValidateClean(), nil))
	return append(own,
		stage.Stage[ReleaseState]{Name: lifecycle.StageValidateFirmware, Weight: 3, Deadline: bmcDeadline, Skip: skipFirmware, Run: validateFirmware,
			Doc: "compare the settings and firmware versions that the BMC shows with the claim"},
		stage.Stage[ReleaseState]{Name: lifecycle.StageRotateBMCLogin, Weight: 3, Deadline: 30 * time.Minute, Skip: skipRotation, Run: rotateLogin, Undo: undoLogin,
			Doc: "give the BMC of a root tenant another password, log in with it, and give it to MAAS"},
		stage.Stage[ReleaseState]{Name: lifecycle.StageCertify, Weight: 1, Deadline: shortDeadline, Run: certify,
			Doc: "sign the certificate of what is proven; what is not keeps the node"},
		stage.Stage[ReleaseState]{Name: lifecycle.StageFreeNode, Weight: 1, Deadline: shortDeadline, Run: freeNode,
			Doc: "confirm the proof; the node is free with the step that completes the job"},
	)
}

// cleaning takes a stage that makes the node clean, unless skip has a reason to leave it out. A
// node whose tenant was root, or whose access was ended by power alone, is installed again, and
// cleaned by its new system: what the tenant left running is not asked. On any other node the
// installed system cleans itself. A release is never taken back, so that no stage has an Undo.
func cleaning(st stage.Stage[sanitize.State], skip func(*ReleaseState) string) stage.Stage[ReleaseState] {
	out := stage.Lift(st, func(s *ReleaseState) *sanitize.State { return &s.Cleaning })
	out.Undo, out.VerifyUndo = nil, nil
	out.Skip = stage.FirstReason(skip, out.Skip)
	run := out.Run
	out.Run = whileOff(st.Name, func(ctx workflow.Context, s *ReleaseState) error {
		if why := s.Cleaning.ReleaseForbidden(); why != "" {
			return stage.Fail(lifecycle.FailConfiguration, "%s; remove the assignment, and decommission the node", why)
		}
		if err := s.occupy(ctx, st.Name, lifecycle.OccupancySanitizing); err != nil {
			return err
		}
		s.EraseAsked = s.EraseAsked || st.Name == lifecycle.StageReleaseMAAS
		return run(ctx, s)
	})
	return out
}

// systemStays returns why the machine is not installed again.
func systemStays(s *ReleaseState) string {
	if s.Cleaning.Mode == lifecycle.ModeReimage {
		return ""
	}
	return "the tenant was not root; the installed system stays"
}

// systemIsNew returns why nothing of the tenant is mounted.
func systemIsNew(s *ReleaseState) string {
	if s.Cleaning.Mode == lifecycle.ModeReimage {
		return "the system is new; nothing of the tenant is mounted"
	}
	return ""
}

func skipFirmware(s *ReleaseState) string {
	if s.Cleaning.Node.BMCID == "" {
		return "Slipway knows no BMC of the node"
	}
	return ""
}
