package providers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// MachineAdapter carries out the steps of runs on the machines of one provider. A capability that
// the provider does not have is nil.
type MachineAdapter struct {
	// Simulated says that nothing outside changes; results and certificates name it.
	Simulated bool

	Inspect      Inspect
	PowerControl PowerControl
	Netboot      Netboot
	Imaging      Imaging
	RemoteExec   RemoteExec
	Network      NetworkConfig
	Return       Return
	// HostProbe says whether a machine answers, for its conditions; no step of a run needs it.
	HostProbe HostProbe
	// ClusterJoin and JoinHost are the two halves of a join.
	ClusterJoin ClusterJoin
	JoinHost    JoinHost
}

// Offers returns the capabilities that the adapter has.
func (a MachineAdapter) Offers() []runplan.Capability {
	var out []runplan.Capability
	for capability, has := range map[runplan.Capability]bool{
		runplan.CapInspect: a.Inspect != nil, runplan.CapPowerControl: a.PowerControl != nil,
		runplan.CapNetboot: a.Netboot != nil, runplan.CapImaging: a.Imaging != nil, runplan.CapRemoteExec: a.RemoteExec != nil,
		runplan.CapNetworkConfig: a.Network != nil, runplan.CapReturn: a.Return != nil,
		runplan.CapClusterJoin: a.JoinsClusters(),
	} {
		if has {
			out = append(out, capability)
		}
	}
	slices.Sort(out)
	return out
}

// JoinsClusters reports whether the adapter has all that a join needs.
func (a MachineAdapter) JoinsClusters() bool {
	return a.ClusterJoin != nil && a.JoinHost != nil && a.RemoteExec != nil
}

// MachineAdapters has the adapter of each provider, by the name that machines state.
type MachineAdapters map[string]MachineAdapter

// For returns the adapter of a provider. It returns KindNotFound when there is none.
func (m MachineAdapters) For(provider string) (MachineAdapter, error) {
	adapter, ok := m[provider]
	if !ok {
		return MachineAdapter{}, &Error{Kind: KindNotFound, Op: "machine.adapter", Message: fmt.Sprintf(
			"there is no provider %q; the providers are %s", provider, strings.Join(slices.Sorted(maps.Keys(m)), ", "))}
	}
	return adapter, nil
}

// MachineTarget is one machine and how it is reached.
type MachineTarget struct {
	ID  string
	SSH SSHTarget
	BMC BMCTarget
}

// MachineFacts are what a machine says of itself.
type MachineFacts struct {
	Serial string
	MACs   []string
	// BootID differs after each boot; "" while the machine does not answer.
	BootID string
}

// Inspect reads what a machine is.
type Inspect interface {
	Inspect(ctx context.Context, t MachineTarget) (MachineFacts, error)
}

// PowerControl restarts machines.
type PowerControl interface {
	// Reboot asks for a restart and returns when it was accepted. A new boot id proves it.
	Reboot(ctx context.Context, t MachineTarget) error
}

// Netboot sets from what a machine boots next.
type Netboot interface {
	// SetNetboot sets the device of the next boot. The one after it is as before.
	SetNetboot(ctx context.Context, t MachineTarget, device BootTarget) error
	// Netboot reads the device of the next boot; BootNone when none is set.
	Netboot(ctx context.Context, t MachineTarget) (BootTarget, error)
}

// Imaging installs operating systems.
type Imaging interface {
	// Repave erases the machine and installs an image. It can be repeated: what the operation id
	// has installed already is not installed again.
	Repave(ctx context.Context, t MachineTarget, opID, image string) error
}

// Return takes machines out, for return to their vendor.
type Return interface {
	// ReturnMachine notes that the machine leaves, under the vendor's ticket. It can be repeated.
	ReturnMachine(ctx context.Context, t MachineTarget, ticket string) error
}

// NetworkChange is a network configuration that a machine tries.
type NetworkChange struct {
	// OpID names one attempt of one step of one run: it is begun once.
	OpID string
	// Netplan is the whole of the file that Slipway keeps beside the machine's own files of
	// netplan.
	Netplan string
	// Confirm is how long the machine waits for ConfirmNetwork before it restores what was there.
	Confirm time.Duration
}

// The bounds of a change of the network.
const (
	MaxNetplan        = 64 << 10
	MaxNetworkConfirm = time.Hour
)

// Check returns KindInvalid when the change is not one that a machine may get.
func (c NetworkChange) Check() error {
	bad := ""
	switch {
	case !ValidOpID(c.OpID):
		bad = "the change needs an operation id: " + opIDRule
	case len(c.Netplan) == 0 || len(c.Netplan) > MaxNetplan || strings.ContainsRune(c.Netplan, 0):
		bad = fmt.Sprintf("the configuration must have 1 to %d bytes and no NUL", MaxNetplan)
	case c.Confirm <= 0 || c.Confirm > MaxNetworkConfirm:
		bad = fmt.Sprintf("the time for the confirmation must be above 0 and at most %s", MaxNetworkConfirm)
	default:
		return nil
	}
	return &Error{Kind: KindInvalid, Op: "machine.network", Message: bad}
}

// NetworkState is what became of a change.
type NetworkState string

// The states of a change.
const (
	NetworkUnknown    NetworkState = "unknown" // the machine knows nothing of the operation
	NetworkPending    NetworkState = "pending" // it waits for the confirmation
	NetworkConfirmed  NetworkState = "confirmed"
	NetworkRolledBack NetworkState = "rolled_back" // what was there before is there again
)

// NetworkConfig changes the network of machines. The machine itself restores what was there before
// unless a change is confirmed, also when nobody reaches it any more and when it restarts
// meanwhile.
type NetworkConfig interface {
	// TryNetwork begins a change and returns its state when the machine has armed its way back. A
	// repetition with the same OpID begins nothing and returns the state.
	//
	// Errors: KindInvalid for a configuration that the machine refuses, with its words; nothing was
	// changed then. KindStateConflict while another change is pending, and where the way back
	// cannot be armed. Those of RemoteExec.
	TryNetwork(ctx context.Context, t MachineTarget, c NetworkChange) (NetworkState, error)
	// ConfirmNetwork keeps a change, over new connections to t. It counts only when an answer that
	// the machine made after it had applied the change has arrived. It returns the state: a change
	// that was rolled back stays so. It returns NetworkPending while the machine has not applied it
	// yet.
	ConfirmNetwork(ctx context.Context, t MachineTarget, opID string) (NetworkState, error)
	// RevertNetwork restores what was there before at once, unless the change was confirmed. It
	// returns the state. A change that was not begun is rolled back too: a later TryNetwork begins
	// nothing.
	RevertNetwork(ctx context.Context, t MachineTarget, opID string) (NetworkState, error)
}

// The bounds of a remote command.
const (
	DefaultRemoteOutput = 8 << 20
	MaxRemoteOutput     = 1 << 30
	MaxRemoteScript     = 64 << 10
	MaxRemoteTimeout    = 24 * time.Hour
)

// The streams of a remote command.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
)

// RemoteCommand is a shell script for one machine.
type RemoteCommand struct {
	// OpID names one attempt of one step of one run. A script with a used id is not run again: its
	// output and end are read.
	OpID string
	// Script is given to sh as a file, so that no process list shows it.
	Script string
	// Secrets are the secret parts of Script: output and errors repeat none of them.
	Secrets []Secret
	Timeout time.Duration // ends the remote processes too; required
	// MaxOutput bounds what is kept of each stream, in bytes; 0 is DefaultRemoteOutput.
	MaxOutput int64
	// From is where the output is read from: Next of the last chunk of each stream that the caller
	// has stored.
	From RemoteOffsets
}

// Check returns KindInvalid when the command is not one that a machine may get.
func (c RemoteCommand) Check() error {
	bad := ""
	switch {
	case !ValidOpID(c.OpID):
		bad = "the command needs an operation id: " + opIDRule
	case len(c.Script) == 0 || len(c.Script) > MaxRemoteScript || strings.ContainsRune(c.Script, 0):
		bad = fmt.Sprintf("the script must have 1 to %d bytes and no NUL", MaxRemoteScript)
	case c.Timeout <= 0 || c.Timeout > MaxRemoteTimeout:
		bad = fmt.Sprintf("the time limit must be above 0 and at most %s", MaxRemoteTimeout)
	case c.MaxOutput < 0 || c.MaxOutput > MaxRemoteOutput:
		bad = fmt.Sprintf("the output limit must lie between 0 and %d bytes", MaxRemoteOutput)
	case c.From.Stdout < 0 || c.From.Stderr < 0:
		bad = "an offset in the output must not be negative"
	default:
		return nil
	}
	return &Error{Kind: KindInvalid, Op: "machine.exec", Message: bad}
}

// KeptOutput returns how many bytes are kept of each stream.
func (c RemoteCommand) KeptOutput() int64 { return cmp.Or(c.MaxOutput, DefaultRemoteOutput) }

const opIDRule = "a letter or digit and then at most 127 letters, digits or any of _ . : -"

var opIDs = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`)

// ValidOpID reports whether an operation id can name a folder: it neither leaves the one it is in
// nor hides there.
func ValidOpID(id string) bool { return opIDs.MatchString(id) }

// RemoteOffsets are positions in the output of a remote command, in bytes.
type RemoteOffsets struct{ Stdout, Stderr int64 }

// OutputChunk is a part of one stream of a remote command.
type OutputChunk struct {
	Stream string // StreamStdout or StreamStderr
	Data   []byte // without secrets; the receiver may keep it
	Next   int64  // where the stream goes on after Data
}

// OutputSink stores a chunk. Chunks of one stream come in order and no two at a time. An error ends
// the reading and not the command.
type OutputSink func(ctx context.Context, chunk OutputChunk) error

// RemoteResult is how a remote command ended.
type RemoteResult struct {
	ExitCode int // 124: the timeout passed and the processes were ended
	// Output is how many bytes were kept of each stream.
	Output RemoteOffsets
	// Truncated says that more was written than is kept.
	Truncated bool
}

// RemoteExec runs scripts on machines.
type RemoteExec interface {
	// Exec runs a script at most once, sends its output to sink while it runs, and returns how it
	// ended. It may be repeated with the same command and a later From.
	//
	// Errors: KindInvalid (a bad command, or an OpID that was used for another one),
	// KindUnreachable (repeat it), KindBusy (it runs, and the connection was lost or an earlier
	// call waits for it: repeat), KindPinMismatch, KindUnauthorized, KindForbidden, KindTooBig (the
	// machine sends more than it was to keep), KindUnavailable (sink failed: repeat) and
	// KindUncertain: it was sent and what became of it is not known now. A repeated call finds out,
	// or says KindUncertain again when the machine lost it.
	Exec(ctx context.Context, t MachineTarget, c RemoteCommand, sink OutputSink) (RemoteResult, error)

	// Stop ends the script of an operation, with SIGTERM and then SIGKILL, and returns when it has
	// ended. Exec then returns exit status 143 or 137, also for one that had not begun: it never
	// does. Stop returns nil for one that has ended, KindUncertain for one that left no result, and
	// KindBusy where it is not known yet: repeat.
	Stop(ctx context.Context, t MachineTarget, opID string) error
}
