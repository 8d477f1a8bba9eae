package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TaskStatus is the state of a node task: a unit of work that the control plane sends to a node's
// agent.
type TaskStatus string

// The states of a node task.
const (
	TaskQueued     TaskStatus = "queued"
	TaskDispatched TaskStatus = "dispatched"
	TaskSucceeded  TaskStatus = "succeeded"
	TaskFailed     TaskStatus = "failed"
	TaskUncertain  TaskStatus = "uncertain"
	TaskExpired    TaskStatus = "expired"
)

// The transitions of a node task. None of them moves the node: an expired lease
// alone never changes a node's state.
var (
	TaskDispatch = taskMove("dispatch", TaskDispatched, "the agent took it under a lease", OwnerNodeReport, TaskQueued)
	TaskRequeue  = taskMove("requeue", TaskQueued, "the lease went stale, or an operator or job requests it again", OwnerSystem, TaskDispatched, TaskUncertain)
	// A task that was queued again ends by the result that the agent's journal
	// kept of the delivery before, as long as nobody else holds it.
	TaskSucceed         = taskMove("succeed", TaskSucceeded, "the agent reported success", OwnerNodeReport, TaskQueued, TaskDispatched, TaskUncertain)
	TaskFail            = taskMove("fail", TaskFailed, "the agent reported failure, or cannot do it", OwnerNodeReport, TaskQueued, TaskDispatched, TaskUncertain)
	TaskBecomeUncertain = taskMove("doubt", TaskUncertain, "it was begun and nobody knows whether it was finished", OwnerSystem, TaskDispatched)
	TaskExpire          = taskMove("expire", TaskExpired, "its deadline passed, or its job withdrew it", OwnerSystem, TaskQueued, TaskDispatched, TaskUncertain)
)

func taskMove(name string, to TaskStatus, doc string, owner Owner, from ...TaskStatus) Transition[TaskStatus] {
	owners := []Owner{owner, OwnerSystem, OwnerJob, OwnerAdmin, OwnerNodeReport}
	slices.Sort(owners)
	return Transition[TaskStatus]{Name: name, From: from, To: to, Owners: slices.Compact(owners), Doc: doc}
}

// NodeTask is the lifecycle of a node task.
var NodeTask = Machine[TaskStatus]{
	Resource: "node_task",
	Initial:  []TaskStatus{TaskQueued},
	States: []StateInfo[TaskStatus]{
		{State: TaskQueued, Doc: "waits for the agent to take it", Transitional: true},
		{State: TaskDispatched, Doc: "the agent works on it under a lease", Transitional: true},
		{State: TaskSucceeded, Doc: "done, result stored", Terminal: true},
		{State: TaskFailed, Doc: "not done, the result says why", Terminal: true},
		{State: TaskUncertain, Doc: "begun, outcome unknown; the agent's journal or an operator decides"},
		{State: TaskExpired, Doc: "not taken or not finished in time", Terminal: true},
	},
	Transitions: []Transition[TaskStatus]{TaskDispatch, TaskRequeue, TaskSucceed, TaskFail, TaskBecomeUncertain, TaskExpire},
}

// TaskKind is what a task asks for. There is none that runs a command of the
// server's choice.
type TaskKind string

// The task kinds.
const (
	TaskKindDrain      TaskKind = "node.drain"
	TaskKindUninstall  TaskKind = "node.uninstall"
	TaskKindRevokeUser TaskKind = "allocation.revoke_user"

	TaskKindCreateUser  TaskKind = "allocation.create_user"
	TaskKindSetKeys     TaskKind = "allocation.set_keys"
	TaskKindSetMetadata TaskKind = "allocation.set_metadata"

	TaskKindRetireCredentials TaskKind = "node.retire_credentials"
	TaskKindProbeNetwork      TaskKind = "node.probe_network"

	TaskKindScrub    TaskKind = "gpu.scrub"
	TaskKindValidate TaskKind = "node.validate"
	TaskKindUpdate   TaskKind = "agent.update"
)

// TaskKindInfo is what is known of a kind in advance.
type TaskKindInfo struct {
	Kind TaskKind
	// Version is the schema version of its arguments and result.
	Version int
	// Redeliver lets the server deliver the task again by itself when its lease went stale. Other
	// tasks become uncertain and wait for the agent's journal, a job or an operator.
	Redeliver bool
	// Deadline is the default time from queued to a result.
	Deadline time.Duration
	Doc      string
}

var taskKinds = []TaskKindInfo{
	{TaskKindDrain, 1, true, 30 * time.Minute, "stop taking work and end what runs: containers, user units and sessions of tenants"},
	{TaskKindUninstall, 1, false, 30 * time.Minute, "remove the agent, its identity and its state from the node"},
	{TaskKindRevokeUser, 1, true, 10 * time.Minute, "end a tenant user's sessions and processes and remove the account and its keys"},
	{TaskKindCreateUser, 1, true, 10 * time.Minute, "make the account of an allocation, without password and keys"},
	{TaskKindSetKeys, 1, true, 10 * time.Minute, "let exactly these public keys log in to the account of an allocation"},
	{TaskKindSetMetadata, 1, true, 10 * time.Minute, "serve what the node's tenant may know of the allocation on the link-local address, or end that"},
	{TaskKindRetireCredentials, 1, true, 10 * time.Minute, "remove from the node's disk what its installation was given: user-data, credentials for MAAS, the enrolment token"},
	{TaskKindProbeNetwork, 1, true, 5 * time.Minute, "try to connect to addresses that the node must not reach, and name those that answer"},
	{TaskKindScrub, 1, false, 12 * time.Hour, "erase what tenants may have left: users, processes, mounts, disks, GPUs; a result per device"},
	{TaskKindValidate, 1, true, 2 * time.Hour, "prove from a fresh boot that the node is clean and meets its SKU"},
	{TaskKindUpdate, 1, false, 30 * time.Minute, "install the agent version of a signed manifest, check it, or go back"},
}

// TaskKinds lists every kind.
func TaskKinds() []TaskKindInfo { return slices.Clone(taskKinds) }

// TaskKindOf returns what is known of a kind.
func TaskKindOf(k TaskKind) (TaskKindInfo, bool) {
	for _, i := range taskKinds {
		if i.Kind == k {
			return i, true
		}
	}
	return TaskKindInfo{}, false
}

// TaskTransition finds the move between two task states.
func TaskTransition(from, to TaskStatus) (Transition[TaskStatus], error) {
	for _, t := range NodeTask.Transitions {
		if t.To == to && slices.Contains(t.From, from) {
			return t, nil
		}
	}
	return Transition[TaskStatus]{}, &IllegalTransitionError{
		Resource: "node_task", From: string(from), To: string(to), Reason: "there is no such transition", Allowed: NodeTask.Reachable(from),
	}
}

// The codes of a failed TaskResult that the control plane itself reads; others
// are for people.
const (
	TaskCodeUnsupported = "unsupported"       // the agent does not know the kind or its version
	TaskCodeRefused     = "refused"           // the agent may not do it as it is asked
	TaskCodeExpired     = "expired"           // its deadline passed, before it was begun or while it ran
	TaskCodeArguments   = "invalid_arguments" // the arguments do not fit the kind
	TaskCodeStepFailed  = "step_failed"
	// Drives differ from those that the task names: one is there besides, and nothing was erased,
	// or one is not there, and the others were erased.
	TaskCodeDriveUnexpected = "drive_unexpected"
	TaskCodeDriveMissing    = "drive_missing"
	// The agent runs on another machine than the task is for, or cannot tell. Nothing was changed.
	TaskCodeOtherMachine = "other_machine"

	TaskCodeUncertain = "uncertain"  // it was begun by an agent that died, and a second look could not tell
	TaskCodeLeaseLost = "lease_lost" // given up half way since the lease was lost
)

// StepResult is one step of a task as the agent did it.
type StepResult struct {
	Name      string    `json:"name" maxLength:"200" text:"clean"`
	OK        bool      `json:"ok"`
	Skipped   string    `json:"skipped,omitempty" maxLength:"4096" text:"clean"` // why it did not apply
	Detail    string    `json:"detail,omitempty" maxLength:"4096" text:"clean"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// SanitizeMethod is the strength of an erasure in the words of NIST SP 800-88.
type SanitizeMethod string

// The methods.
const (
	SanitizePurge SanitizeMethod = "purge"
	SanitizeClear SanitizeMethod = "clear"
	SanitizeNone  SanitizeMethod = "none"
)

// DeviceResult is what became of one device. Verified false keeps a node
// quarantined, whatever else succeeded.
type DeviceResult struct {
	Kind     string         `json:"kind" maxLength:"50" text:"clean"` // disk, gpu, memory, tpm, nic
	Name     string         `json:"name" maxLength:"200" text:"clean"`
	Serial   string         `json:"serial,omitempty" maxLength:"200" text:"clean"`
	Model    string         `json:"model,omitempty" maxLength:"200" text:"clean"`
	Method   SanitizeMethod `json:"method" maxLength:"20"`
	Tool     string         `json:"tool,omitempty" maxLength:"500" text:"clean"` // program and version
	Verified bool           `json:"verified"`
	Detail   string         `json:"detail,omitempty" maxLength:"4096" text:"clean"`
}

// TaskResult is what an agent reports when a task has ended.
type TaskResult struct {
	OK      bool           `json:"ok"`
	Code    string         `json:"code,omitempty" maxLength:"64"` // stable reason of a failure: unsupported, refused, expired, step_failed, ...
	Message string         `json:"message,omitempty" maxLength:"4096" text:"clean"`
	BootID  string         `json:"boot_id,omitempty" maxLength:"64"`
	Steps   []StepResult   `json:"steps,omitempty" maxItems:"512"`
	Devices []DeviceResult `json:"devices,omitempty" maxItems:"8192"`
	// Simulated is true where recorded tools stood in for the real ones.
	Simulated bool            `json:"simulated,omitempty"`
	Output    json.RawMessage `json:"output,omitempty" maxLength:"262144"` // the kind's own result
}

// CheckArgs decodes a kind's arguments strictly and says what is wrong.
func (k TaskKind) CheckArgs(version int, raw json.RawMessage) (any, error) {
	info, ok := TaskKindOf(k)
	if !ok {
		return nil, fmt.Errorf("task kind %q is unknown", k)
	}
	if version != info.Version {
		return nil, fmt.Errorf("task kind %s has schema version %d, not %d", k, info.Version, version)
	}
	into := map[TaskKind]any{
		TaskKindDrain: &spec.DrainArgs{}, TaskKindUninstall: &spec.UninstallArgs{}, TaskKindRevokeUser: &spec.RevokeUserArgs{},
		TaskKindCreateUser: &spec.CreateUserArgs{}, TaskKindSetKeys: &spec.SetKeysArgs{}, TaskKindSetMetadata: &spec.SetMetadataArgs{},
		TaskKindRetireCredentials: &spec.RetireCredentialsArgs{}, TaskKindProbeNetwork: &spec.ProbeNetworkArgs{},
		TaskKindScrub: &spec.ScrubArgs{}, TaskKindValidate: &spec.ValidateArgs{}, TaskKindUpdate: &spec.UpdateArgs{},
	}[k]
	return into, spec.DecodeArgs(raw, into)
}
