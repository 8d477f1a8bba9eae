package task

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const maxPayload = 256 << 10

// Refusal is why a task is not done at all. It becomes the task's result.
type Refusal struct{ Code, Reason string }

func (r *Refusal) Error() string { return r.Reason }

// Result is the refusal as the task's result.
func (r *Refusal) Result() lifecycle.TaskResult { return Fail(r.Code, r.Reason) }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// Open checks the signature of a task and reads it.
func Open(s protocol.SignedTask, keys []protocol.TaskKey) (protocol.Task, *Refusal) {
	var t protocol.Task
	if len(s.Payload) > maxPayload {
		return t, refuse(CodeRefused, "the task is over %d bytes", maxPayload)
	}
	i := slices.IndexFunc(keys, func(k protocol.TaskKey) bool { return k.KeyID == s.KeyID })
	if i < 0 {
		return t, refuse(CodeRefused, "the task is signed with key %q, which does not count on this node; it learns keys with heartbeats, and the privileged process believes one that the key before it has signed",
			Clip(s.KeyID, 64))
	}
	if len(keys[i].Public) != ed25519.PublicKeySize {
		return t, refuse(CodeRefused, "key %q is no ed25519 key", Clip(s.KeyID, 64))
	}
	if !ed25519.Verify(keys[i].Public, append([]byte(protocol.TaskContext), s.Payload...), s.Signature) {
		return t, refuse(CodeRefused, "the task's signature is not right")
	}
	if err := json.Unmarshal(s.Payload, &t); err != nil || t.ID == "" || t.LeaseID == "" {
		return t, refuse(CodeRefused, "the task's payload is not a task")
	}
	return t, nil
}

// peek reads who a task says it is, without believing it: only the answer that
// it is refused is addressed by it.
func peek(s protocol.SignedTask) (t protocol.Task, ok bool) {
	if len(s.Payload) > maxPayload || json.Unmarshal(s.Payload, &t) != nil {
		return t, false
	}
	return t, t.ID != "" && t.LeaseID != ""
}

// Fence is what a task must fit.
type Fence struct {
	NodeID string
	BootID string
	// Generation is the certificate's under which it was claimed.
	Generation int64
	Now        time.Time
}

// Check refuses a task that is meant for another node, boot, generation or time.
func (f Fence) Check(t protocol.Task) *Refusal {
	switch {
	case t.NodeID != f.NodeID:
		return refuse(CodeRefused, "the task is for node %q; this is node %q", Clip(t.NodeID, 64), f.NodeID)
	case t.BootID != f.BootID:
		return refuse(CodeRefused, "the task is for boot %q; this is boot %q", Clip(t.BootID, 64), f.BootID)
	case t.Generation != f.Generation:
		return refuse(CodeRefused, "the task is for generation %d of the node's identity; this is generation %d", t.Generation, f.Generation)
	case !f.Now.Before(t.Deadline):
		return refuse(CodeExpired, "the task's deadline %s has passed", t.Deadline.UTC().Format(time.RFC3339))
	}
	return nil
}

// arguments checks kind, version and arguments, and finds the handler.
func (r Registry) arguments(t protocol.Task) (Handler, any, *Refusal) {
	info, known := lifecycle.TaskKindOf(t.Kind)
	h := r[t.Kind]
	if !known || h == nil {
		return nil, nil, refuse(CodeUnsupported, "this agent does not know tasks of kind %q", Clip(string(t.Kind), 64))
	}
	if t.SchemaVersion != info.Version {
		return nil, nil, refuse(CodeUnsupported, "this agent knows version %d of %s, not %d", info.Version, t.Kind, t.SchemaVersion)
	}
	args, err := t.Kind.CheckArgs(t.SchemaVersion, t.Args)
	if err != nil {
		return nil, nil, refuse(CodeArguments, "%s", Clip(err.Error(), 500))
	}
	return h, args, nil
}
