package task

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The codes of results that are not OK. They are stable.
const (
	CodeUnsupported = lifecycle.TaskCodeUnsupported // the kind or its version is not known here
	CodeRefused     = lifecycle.TaskCodeRefused     // signature, fence or target is not right
	CodeExpired     = lifecycle.TaskCodeExpired     // its deadline is over
	CodeStepFailed  = lifecycle.TaskCodeStepFailed  // a step failed; the steps say which
	CodeUncertain   = lifecycle.TaskCodeUncertain   // begun, and nobody knows how far it came
	CodeArguments   = "invalid_arguments"           // the arguments do not fit the kind
	CodeRolledBack  = "rolled_back"                 // it was done, found wanting and undone
	CodeInternal    = "internal"                    // the handler itself is at fault
)

// codeRestart and codeHalted never leave the node: the entry stays begun.
const (
	codeRestart = "restart"
	codeHalted  = "halted"
)

// Errors of an Executor.
var (
	// ErrRestart asks the process to end so that another version starts.
	ErrRestart = errors.New("the agent must be started again")
	// ErrUninstalled says that nothing of the agent is left on the node.
	ErrUninstalled = errors.New("the agent was removed from this node")
	// ErrInterrupted says that a task was begun and not ended; the journal knows it.
	ErrInterrupted = errors.New("the task was interrupted")
	// ErrForgotten says that the journal dropped a task: it belongs to an earlier
	// boot, and the server hands it out again.
	ErrForgotten = errors.New("the task belongs to an earlier boot and will be handed out again")
	// ErrBusy says that another task runs.
	ErrBusy = errors.New("another task runs")
)

// Request is one run of a handler.
type Request struct {
	Task protocol.Task
	// Args is what lifecycle.TaskKind.CheckArgs made of the arguments: a pointer
	// such as *lifecycle.DrainArgs.
	Args any
	// Resumed is true when the journal says that it was begun before. Rebooted is true when that
	// was in another boot, Expired when its deadline is over.
	Resumed, Rebooted, Expired bool
	// Fetch downloads a file and gives the path where it lies. Whoever fetched it
	// is not trusted: check what lies there. It is nil when nobody can.
	Fetch func(ctx context.Context, f File) (path string, err error)
}

// File is something to fetch.
type File struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"` // hex
	Size   int64  `json:"size"`   // bytes; more is never read
}

// Handler does the tasks of one kind. Run looks before it acts, so that it may
// be run again. ctx ends with the task's deadline or the process; when it ends
// early the result does not count and the task stays begun.
type Handler interface {
	Run(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult
}

// Func is a Handler that is one function.
type Func func(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult

// Run implements Handler.
func (f Func) Run(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult {
	return f(ctx, r, steps)
}

// Resumer is a Handler of a kind that the server does not hand out again by
// itself: Resume looks at what was done, and goes on or says Uncertain, also
// after a reboot or the deadline. A handler without it ends as uncertain.
type Resumer interface {
	Resume(ctx context.Context, r Request, steps *Recorder) lifecycle.TaskResult
}

// Finisher is a Handler with something to do after its result is with the
// server. Finish may be repeated. ErrUninstalled as its error ends the agent.
type Finisher interface {
	Finish(ctx context.Context, r Request, result lifecycle.TaskResult) error
}

// Registry holds the handler of each kind.
type Registry map[lifecycle.TaskKind]Handler

// Control is how a running task and whoever handed it over speak.
type Control struct {
	// Progress is told of each step that begins; it must not block.
	Progress func(step string)
	// Halt is closed when the lease is lost: no new step begins, unless the kind
	// goes on to its end.
	Halt <-chan struct{}
	// Fetch serves Request.Fetch.
	Fetch func(ctx context.Context, f File) (path string, err error)
}

// Executor does tasks. One runs at a time.
type Executor interface {
	// Pending lists what the journal holds that the server does not know the end of.
	Pending(ctx context.Context) ([]Entry, error)
	// Execute does a task or goes on with it, and gives its result, which is in
	// the journal before it is returned. A task that is done is not done again.
	// generation is the certificate's under which it was claimed.
	Execute(ctx context.Context, signed protocol.SignedTask, generation int64, c Control) (lifecycle.TaskResult, error)
	// Acknowledge says that the server has the result of a task.
	Acknowledge(ctx context.Context, taskID string) error
	// Drop says that the server no longer waits for a task.
	Drop(ctx context.Context, taskID string) error
	// Trust hands over the keys that the control plane signs with.
	Trust(ctx context.Context, keys []protocol.TaskKey) error
	// Healthy says that a heartbeat of this version was accepted.
	Healthy(ctx context.Context, version string) error
	// InService says that the node is back in service and drops the mark of the
	// drain with this task id; that of another drain, or of one that runs, stays.
	// It gives the id of the mark that is there afterwards, "" for none.
	InService(ctx context.Context, drain string) (mark string, err error)
}

// Phase is how far a task came on this node.
type Phase string

// The phases. Reported, finished and dropped entries stay until the task's
// deadline, so that a copy of it that comes again is known.
const (
	Begun    Phase = "begun"
	Done     Phase = "done"
	Reported Phase = "reported" // acknowledged, but Finish is to be run
	Finished Phase = "finished"
	Dropped  Phase = "dropped"
)

// Entry is what the journal knows of one task.
type Entry struct {
	TaskID   string              `json:"task_id"`
	Kind     lifecycle.TaskKind  `json:"kind"`
	Attempt  int                 `json:"attempt"`
	LeaseID  string              `json:"lease_id"`
	BootID   string              `json:"boot_id"`
	Deadline time.Time           `json:"deadline"`
	Signed   protocol.SignedTask `json:"signed"`
	Phase    Phase               `json:"phase"`
	// Steps are what was done before a restart that belongs to the task.
	Steps  []lifecycle.StepResult `json:"steps,omitempty"`
	Result *lifecycle.TaskResult  `json:"result,omitempty"`
	At     time.Time              `json:"at"`
	Order  int64                  `json:"order"`
}

// Fail is a result that is not OK.
func Fail(code, message string) lifecycle.TaskResult {
	return lifecycle.TaskResult{Code: code, Message: Clip(message, maxMessage)}
}

// Restart is what a handler answers to go on after the process was started
// again.
func Restart() lifecycle.TaskResult { return lifecycle.TaskResult{Code: codeRestart} }

// Uncertain is what a Resume answers when it cannot tell.
func Uncertain(message string) lifecycle.TaskResult { return Fail(CodeUncertain, message) }
