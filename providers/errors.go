package providers

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what sort of failure an outside call ended in. Side.FailureClass maps each Kind to a
// failure class; nothing else does.
type Kind string

// The kinds of failure.
const (
	KindUnreachable            Kind = "unreachable"              // no answer, nothing was sent or it was a read: retry
	KindUnavailable            Kind = "unavailable"              // answered that it cannot now (5xx, 503): retry
	KindBusy                   Kind = "busy"                     // conflict that passes by itself (MAAS serialization 409, POST in progress): retry
	KindUncertain              Kind = "uncertain"                // a mutation was sent, its outcome is unknown: re-read before any retry
	KindUnauthorized           Kind = "unauthorized"             // credential rejected: never retried by itself
	KindForbidden              Kind = "forbidden"                // authenticated, not allowed
	KindNotFound               Kind = "not_found"                // absent
	KindInvalid                Kind = "invalid"                  // refused as wrong; the same request will be refused again
	KindStateConflict          Kind = "state_conflict"           // final until the remote state changes (MAAS NodeStateViolation 409)
	KindLocked                 Kind = "locked"                   // account locked out
	KindPinMismatch            Kind = "pin_mismatch"             // certificate or host key differs from the approved one
	KindPasswordChangeRequired Kind = "password_change_required" // factory credential that must be rotated first
	KindUnsupported            Kind = "unsupported"              // the device cannot do this
	KindTooBig                 Kind = "too_big"                  // answer over the cap
	KindForeign                Kind = "foreign"                  // answer points to another host, or redirects
	KindProtocol               Kind = "protocol"                 // answer is not what the protocol says
	KindQuota                  Kind = "quota"                    // a quota of the account is used up; nothing was made
	KindCapacity               Kind = "capacity"                 // the other side has none free now; nothing was made
	KindExit                   Kind = "exit"                     // a remote command ended with a non-zero status
)

// Error is the one error type of all providers.
type Error struct {
	Kind       Kind
	Op         string        // "maas.deploy", "redfish.set_power"
	Status     int           // HTTP status where there was one
	RetryAfter time.Duration // as asked by the other side; 0 when it did not
	Message    string        // bounded, free of secrets, fit for an operator
	Err        error         // cause, for the log only
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s: %s (%s, HTTP %d)", e.Op, e.Message, e.Kind, e.Status)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Op, e.Message, e.Kind)
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or "" when err is no provider error.
func KindOf(err error) Kind {
	var pe *Error
	if errors.As(err, &pe) {
		return pe.Kind
	}
	return ""
}

// IsKind reports whether err is a provider error of kind k.
func IsKind(err error, k Kind) bool { return err != nil && KindOf(err) == k }
