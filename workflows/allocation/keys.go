package allocation

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// KeysState is what a change of keys knows; it is checkpointed with each projection.
type KeysState struct {
	Job     contract.JobRef             `json:"job"`
	Request contract.AllocationInput    `json:"request"`
	Facts   contract.AllocationFacts    `json:"facts,omitzero"`
	Config  contract.DecommissionConfig `json:"config,omitzero"`
	Node    contract.DecommissionFacts  `json:"node,omitzero"`
	Machine contract.MachineFacts       `json:"machine,omitzero"`
	Tries   KeysTries                   `json:"tries,omitzero"`

	// Read is set once the keys were read: each try of the job sends and proves the same ones, so
	// that no older set comes after a newer one. Keys that change meanwhile are those of another
	// job.
	Read bool `json:"read,omitempty"`
	// Connection is where the node accepted the keys in force.
	Connection *contract.AllocationConnection `json:"connection,omitempty"`
	Failure    *contract.Failure              `json:"failure,omitempty"`
}

// KeysTries are those of each task.
type KeysTries struct {
	Keys     contract.TaskTries `json:"keys"`
	Metadata contract.TaskTries `json:"metadata"`
}

// Keys is the workflow that brings the keys of an active allocation to its node.
func Keys(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, KeysJob(in), in)
}

// KeysJob is the change of keys for one input. It never parks: a parked job would keep the node
// from every other job, and the allocation from its release. A job that fails ends, and the sweeper
// starts another while anything is unproven.
func KeysJob(in contract.JobInput) stage.Job[KeysState] {
	return stage.Job[KeysState]{
		Kind:   contract.KindAllocationKeys,
		Stages: keysStages(),
		Init: func(s *KeysState, input []byte) error {
			s.Job = in.Ref()
			return decode(in, input, &s.Request)
		},
		Observed: func(s *KeysState) lifecycle.Observed { return observed(s.Node, s.Machine) },
		Metadata: func(s *KeysState) lifecycle.ActionMetadata { return s.Machine.ActionMetadata() },
		Moves:    keysMove,
		GivesUp: func(s *KeysState, f contract.Failure) bool {
			if s.Failure == nil {
				s.Failure = &f
			}
			return true
		},
		Attempts: func(_ *KeysState, _ lifecycle.FailureClass, dflt int) int { return max(dflt, keysTries) },
	}
}

// keysMove tells what the job came to. The allocation stays where it is.
func keysMove(s *KeysState, at contract.Step) *contract.Move {
	var m contract.AllocationMove
	switch at.Entered { //nolint:exhaustive // the others tell nothing
	case lifecycle.JobCompleted, lifecycle.JobReconciled:
		m.KeysProven, m.Connection = true, s.Connection
	case lifecycle.JobCancelled:
		if s.Failure != nil {
			m.FailureClass, m.FailureStage = s.Failure.Class, s.Failure.Stage
		}
	default:
		return nil
	}
	return m.Move(s.Request.AllocationID)
}

func (s *KeysState) ref(at string) contract.AllocationRef {
	return contract.AllocationRef{JobRef: s.Job.At(at), AllocationID: s.Request.AllocationID}
}

// keysLimit is how long the agent may take to set the keys, and the node to refuse, or accept,
// them. A release that is asked for meanwhile waits as long at most.
const keysLimit = time.Minute

// keysTries is how often a stage is tried at least: a former member may be able to log in until
// then.
const keysTries = 2

func keysStages() []stage.Stage[KeysState] {
	return []stage.Stage[KeysState]{
		{Name: lifecycle.StageSetKeys, Weight: 2, Deadline: shortDeadline, Waits: true, Run: whileActive(setKeys), Undo: undoSetKeys,
			Doc: "put exactly the public keys in force into the tenant's account"},
		{Name: lifecycle.StageProveKeys, Weight: 3, Deadline: shortDeadline, Waits: true, Run: whileActive(proveChangedKeys),
			Doc: "offer each key to the node without a signature: former ones are refused, those in force accepted"},
		{Name: lifecycle.StageRecordKeys, Weight: 1, Deadline: shortDeadline, Waits: true, Run: whileActive(recordKeys),
			Doc: "store what the node accepts, and give its metadata the keys in force"},
	}
}

// whileActive runs a stage unless the allocation is not active any more: its release withdraws all
// keys.
func whileActive(run func(workflow.Context, *KeysState) error) func(workflow.Context, *KeysState) error {
	return func(ctx workflow.Context, s *KeysState) error {
		f, err := stage.Do(ctx, stage.KindLocalWork, "is the allocation still active", allocs.ReadAllocation, s.ref(""))
		if err != nil {
			return err
		}
		if f.Status != lifecycle.AllocationActive || f.NodeID != s.Job.NodeID {
			return stage.Cancel("the allocation is not active any more, and its release withdraws all keys")
		}
		if !s.Read {
			s.Facts, s.Read = f, true
		}
		return run(ctx, s)
	}
}

func setKeys(ctx workflow.Context, s *KeysState) error {
	const at = lifecycle.StageSetKeys
	// The site is read from the database alone: what ends an access waits for nobody.
	c, err := stage.Do(ctx, stage.KindLocalWork, "read the site", maas.LoadNodeConfig, maasact.NodeConfigIn{JobRef: s.Job.At(at)})
	if err != nil {
		return err
	}
	n, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil {
		return err
	}
	s.Config, s.Node = c, n
	return runTask(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindSetKeys, tries: &s.Tries.Keys, limit: keysLimit,
		args: spec.SetKeysArgs{AllocationID: s.Request.AllocationID, User: lifecycle.TenantAccount(s.Request.AllocationID), Keys: publicKeys(s.Facts.Keys)}})
}

// undoSetKeys withdraws a task that no agent has taken: a job of later may send other keys.
func undoSetKeys(ctx workflow.Context, s *KeysState) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, agenttask.RevokeTasksIn{JobRef: s.Job})
	return err
}

// proveChangedKeys has the node refuse the former keys first, and stores that at once: a node that
// does not accept a key in force says nothing of them.
func proveChangedKeys(ctx workflow.Context, s *KeysState) error {
	const at = lifecycle.StageProveKeys
	if s.Node.SystemID != "" {
		m, err := stage.Do(ctx, stage.KindMAASCall, "read the node's addresses", maas.ObserveMachine, maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Node.SystemID})
		if err == nil { // without MAAS the address of the node's record counts
			s.Machine = m
		}
	}
	if err := s.offer(ctx, at, s.Facts.Former, false); err != nil {
		return err
	}
	if err := s.record(ctx, at, s.Facts.Former, false); err != nil {
		return err
	}
	return s.offer(ctx, at, s.Facts.Keys, true)
}

// offer has the node accept, or refuse, each of some keys.
func (s *KeysState) offer(ctx workflow.Context, at string, keys []contract.AllocationKey, accepted bool) error {
	words := map[bool]string{true: "have each key in force accepted", false: "have each former key refused"}
	account := accessact.Account{AllocationID: s.Request.AllocationID, Site: s.Config.Site, IPs: s.Machine.IPs}
	for some := range slices.Chunk(publicKeys(keys), spec.MaxTenantKeys) {
		out, err := stage.Do(ctx, stage.KindPoll, words[accepted], access.OfferKeys, accessact.OfferKeysIn{
			JobRef: s.Job.At(at), Account: account, Keys: some, Accepted: accepted,
			Until: stage.Within(ctx, keysLimit, taskMargin), Poll: s.Config.Profile.PollInterval,
		})
		if err != nil {
			return err
		}
		if !out.Done {
			return stage.Fail(lifecycle.FailNodeTask, "nothing proves who may log in: %s", out.Note)
		}
		if !accepted || out.Connection.Address == "" { // a former key, or an answer without an address
			continue
		}
		if s.Connection, err = connectionOf(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// record stores what the node was seen to do with keys.
func (s *KeysState) record(ctx workflow.Context, at string, keys []contract.AllocationKey, accepted bool) error {
	if len(keys) == 0 {
		return nil
	}
	in := allocationact.RecordKeysIn{AllocationRef: s.ref(at), Accepted: accepted}
	for _, k := range keys {
		in.Fingerprints = append(in.Fingerprints, k.Fingerprint)
	}
	_, err := stage.Do(ctx, stage.KindLocalWork, "store what the node does with keys", allocs.RecordKeys, in)
	return err
}

// recordKeys gives the node's metadata the keys as well, since programs of the tenant read them
// there.
func recordKeys(ctx workflow.Context, s *KeysState) error {
	const at = lifecycle.StageRecordKeys
	if err := s.record(ctx, at, s.Facts.Keys, true); err != nil {
		return err
	}
	doc, err := stage.Do(ctx, stage.KindLocalWork, "gather the metadata", allocs.DescribeInstance, s.ref(at))
	if err != nil {
		return err
	}
	return runTask(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindSetMetadata, tries: &s.Tries.Metadata, limit: keysLimit,
		args: spec.SetMetadataArgs{AllocationID: s.Request.AllocationID, Document: &doc}})
}
