// Package allocation has the jobs of an allocation: one gives a tenant a node, one changes the keys
// that may log in, and one takes the node back. The release cleans the node with the stages of a
// decommission.
package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// ProvisionState is what a provision knows; it is checkpointed with each projection.
type ProvisionState struct {
	Job     contract.JobRef             `json:"job"`
	Request contract.AllocationInput    `json:"request"`
	Facts   contract.AllocationFacts    `json:"facts,omitzero"`
	Config  contract.DecommissionConfig `json:"config,omitzero"`
	Node    contract.DecommissionFacts  `json:"node,omitzero"`
	Machine contract.MachineFacts       `json:"machine,omitzero"`
	Tries   ProvisionTries              `json:"tries,omitzero"`

	// Probe is what the node must not reach, kept so that a repetition asks for the same.
	Probe *spec.ProbeNetworkArgs `json:"probe,omitempty"`

	Settings   contract.SettingsFacts         `json:"settings,omitzero"`
	Connection *contract.AllocationConnection `json:"connection,omitempty"`
	Image      *contract.AllocationImage      `json:"image,omitempty"`

	// KeysSent is set before the tenant's keys are sent to the node.
	KeysSent bool `json:"keys_sent,omitempty"`

	// Failure is why the provision gives up. Unproven says why the node may hold something of the
	// tenant: the release job cleans it then.
	Failure  *contract.Failure `json:"failure,omitempty"`
	Unproven string            `json:"unproven,omitempty"`
}

// ProvisionTries are those of each task.
type ProvisionTries struct {
	Create   contract.TaskTries `json:"create"`
	Metadata contract.TaskTries `json:"metadata"`
	Keys     contract.TaskTries `json:"keys"`
	Withdraw contract.TaskTries `json:"withdraw"`
	Revoke   contract.TaskTries `json:"revoke"`
	Retire   contract.TaskTries `json:"retire,omitzero"`
	Probe    contract.TaskTries `json:"probe,omitzero"`
}

// Provision is the workflow that gives a tenant a node.
func Provision(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, ProvisionJob(in), in)
}

// ProvisionJob is the provision for one input. It never parks at a failure: the tenant waits for a
// node, and no operator makes this one his. Everything that was begun is undone, and the allocation
// fails.
func ProvisionJob(in contract.JobInput) stage.Job[ProvisionState] {
	return stage.Job[ProvisionState]{
		Kind:   contract.KindAllocationProvision,
		Stages: provisionStages(),
		Init: func(s *ProvisionState, input []byte) error {
			s.Job = in.Ref()
			return decode(in, input, &s.Request)
		},
		NodeID:    func(s *ProvisionState) string { return s.Job.NodeID },
		Observed:  func(s *ProvisionState) lifecycle.Observed { return observed(s.Node, s.Machine) },
		Metadata:  func(s *ProvisionState) lifecycle.ActionMetadata { return s.Machine.ActionMetadata() },
		Moves:     provisionMove,
		Cancelled: provisionCancelled,
		GivesUp:   givesUp,
	}
}

func decode(in contract.JobInput, input []byte, request *contract.AllocationInput) error {
	if err := json.Unmarshal(input, request); err != nil {
		return fmt.Errorf("allocation request: %w", err)
	}
	if request.AllocationID == "" {
		request.AllocationID = in.ResourceID
	}
	if request.AllocationID == "" {
		return errors.New("the request names no allocation")
	}
	return nil
}

func observed(n contract.DecommissionFacts, m contract.MachineFacts) lifecycle.Observed {
	o := lifecycle.Observed{MAAS: m.Status, Power: m.Power, Agent: "none"}
	if n.Agent == contract.AgentAlive {
		o.Agent = "enrolled"
	}
	return o
}

// givesUp keeps the first failure: why the allocation failed.
func givesUp(s *ProvisionState, f contract.Failure) bool {
	if s.Failure == nil {
		s.Failure = &f
	}
	return true
}

// provisionMove is what happens to the allocation with the job. The node of a provision that ends
// early goes back at once only where no key of the tenant has been on it and its account is proven
// gone; the release job cleans it otherwise.
func provisionMove(s *ProvisionState, at contract.Step) *contract.Move {
	var m contract.AllocationMove
	switch at.Entered { //nolint:exhaustive // the others leave it where it is
	case lifecycle.JobCompleted, lifecycle.JobReconciled:
		m.To, m.Connection, m.Image = lifecycle.AllocationActive, s.Connection, s.Image
	case lifecycle.JobCancelled:
		m.To, m.Clean, m.Note = lifecycle.AllocationFailed, s.Unproven == "", s.Unproven
		if s.Failure != nil {
			m.FailureClass, m.FailureStage = s.Failure.Class, s.Failure.Stage
		}
	default:
		return nil
	}
	return m.Move(s.Request.AllocationID)
}

// provisionCancelled takes a node out of service on which a provision failed: it would be claimed
// again at once, and fail every tenant. A failure elsewhere says nothing of the node, and neither
// does a failure after the tenant's keys were sent: the tenant may be on the node, as root, and
// make it fail. The release cleans and proves it then, as after any tenant.
func provisionCancelled(s *ProvisionState) *contract.Move {
	if s.Job.NodeID == "" || s.Failure == nil || s.KeysSent {
		return nil
	}
	switch s.Failure.Class { //nolint:exhaustive // every other class is about the node
	case lifecycle.FailMAASUnavailable, lifecycle.FailStoreUnavailable, lifecycle.FailInternal, lifecycle.FailSecretUnavailable, lifecycle.FailConfiguration,
		lifecycle.FailCapacity, lifecycle.FailBMCUnreachable:
		return nil
	}
	return quarantine(fmt.Sprintf("an allocation could not be provisioned: %s: %s", s.Failure.Stage, s.Failure.Message))
}

func quarantine(note string) *contract.Move {
	return contract.NodeMove{To: lifecycle.NodeQuarantined, Owner: lifecycle.OwnerDecommission, Note: note, Soft: true}.Move()
}

func (s *ProvisionState) ref(at string) contract.AllocationRef {
	return contract.AllocationRef{JobRef: s.Job.At(at), AllocationID: s.Request.AllocationID}
}

// The deadlines of the stages of a provision. That of the claim is a little more than the longest
// wait for a node.
const (
	claimDeadline = 24*time.Hour + 30*time.Minute
	shortDeadline = 5 * time.Minute
	bmcDeadline   = 10 * time.Minute
	taskDeadline  = 15 * time.Minute
)

func provisionStages() []stage.Stage[ProvisionState] {
	return []stage.Stage[ProvisionState]{
		{Name: lifecycle.StageClaimNode, Weight: 1, Deadline: claimDeadline, DeadlineClass: lifecycle.FailCapacity, Waits: true, Run: claim,
			Doc: "claim a free node of the SKU, and wait for one until the request's deadline"},
		{Name: lifecycle.StageCheckNode, Weight: 2, Deadline: shortDeadline, Run: unlessReleased(checkNode),
			Doc: "prove that the node is the allocation's alone, active, clean and heard from"},
		{Name: lifecycle.StageIsolateNode, Weight: 4, Deadline: bmcDeadline, Skip: skipWithoutBMC, Run: unlessReleased(isolateNode),
			Doc: "switch off the interface between the node's own system and its BMC, where the BMC allows it"},
		{Name: lifecycle.StageSnapshotFirmware, Weight: 6, Deadline: bmcDeadline, Skip: skipWithoutBMC, Run: unlessReleased(snapshot),
			Doc: "keep the settings and firmware versions that the BMC shows, to compare them at the release"},
		{Name: lifecycle.StageRetireCredentials, Weight: 1, Deadline: shortDeadline, Run: unlessReleased(retire),
			Doc: "end every enrolment token of the node, and delete what its installation was given, here and on its disk"},
		{Name: lifecycle.StageProbeNetwork, Weight: 2, Deadline: taskDeadline, Waits: true, Run: unlessReleased(probeNetwork),
			Doc: "have the node try to reach the control plane, MAAS, BMCs and other nodes, and fail where one of them answers"},
		{Name: lifecycle.StageCreateAccount, Weight: 4, Deadline: taskDeadline, Waits: true, Run: unlessReleased(createAccount), Undo: undoAccount,
			Doc: "make the tenant's account on the node, without a password and without keys"},
		{Name: lifecycle.StageProveLogin, Weight: 8, Deadline: taskDeadline, Run: unlessReleased(proveLogin),
			Doc: "log in as the tenant with a one-time key, remove it, and prove that it is refused"},
		{Name: lifecycle.StageInstallKeys, Weight: 4, Deadline: shortDeadline, Waits: true, Run: unlessReleased(installKeys), Undo: undoKeys,
			Doc: "put the tenant's public keys into the account"},
		{Name: lifecycle.StageProveKeys, Weight: 4, Deadline: shortDeadline, Run: proveKeys,
			Doc: "offer each key to the node without a signature, and have it accepted"},
		{Name: lifecycle.StageActivate, Weight: 1, Deadline: shortDeadline, Run: unlessReleased(activate),
			Doc: "confirm that the allocation is still wanted; it becomes active with the step that completes the job"},
	}
}

func skipWithoutBMC(s *ProvisionState) string {
	if s.Node.BMCID == "" {
		return "Slipway knows no BMC of the node"
	}
	return ""
}
