package ipmi

import (
	"context"
	"errors"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// Messages are fixed sentences with codes in them: nothing that a BMC sends as
// text, and nothing of the login, gets into an error.

func invalid(op, message string) *providers.Error {
	return &providers.Error{Kind: providers.KindInvalid, Op: op, Message: message}
}

// completion is the completion code of a refused command.
type completion byte

func (c completion) Error() string { return fmt.Sprintf("completion code 0x%02x", byte(c)) }

// codeOf is the completion code behind err.
func codeOf(err error) (completion, bool) {
	var c completion
	ok := errors.As(err, &c)
	return c, ok
}

// absent: the BMC says that there is no such record, sensor or device, or that
// it does not know the command. An empty event log answers so.
func absent(err error) bool {
	return providers.IsKind(err, providers.KindNotFound) || providers.IsKind(err, providers.KindUnsupported)
}

// refused maps a completion code (table 5-2) to a failure.
func refused(op string, code completion) *providers.Error {
	kind, why := providers.KindProtocol, "the BMC refused the command with a code of its own"
	switch byte(code) {
	case 0xc0, 0xc5, 0xd0, 0xd1, 0xd2:
		kind, why = providers.KindBusy, "the BMC is busy"
	case 0xc3, 0xc4, 0xce, 0xcf, 0xd3, 0xff:
		kind, why = providers.KindUnavailable, "the BMC cannot carry out the command now"
	case 0xc1, 0xc2, 0xd6:
		kind, why = providers.KindUnsupported, "the BMC does not know the command, or it is turned off"
	case 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcc, 0xcd:
		kind, why = providers.KindInvalid, "the BMC does not take the request"
	case 0xcb:
		kind, why = providers.KindNotFound, "the BMC has no such record, sensor or device"
	case 0xd4:
		kind, why = providers.KindForbidden, "the BMC account may not do this; give it the operator privilege on the LAN channel"
	case 0xd5:
		kind, why = providers.KindStateConflict, "the BMC does not take the command in the present state"
	}
	return &providers.Error{Kind: kind, Op: op, Err: code, Message: fmt.Sprintf("%s (completion code 0x%02x)", why, byte(code))}
}

// lost maps an exchange that ended without an answer. mutated says that a
// change was sent, so that its outcome is unknown.
func lost(op string, err error, mutated bool) *providers.Error {
	e := &providers.Error{Kind: providers.KindUnreachable, Op: op, Err: cause(err)}
	var quiet silence
	var refused *providers.Error
	switch {
	case providers.IsRefusedAddress(err) && errors.As(err, &refused):
		return &providers.Error{Kind: refused.Kind, Op: op, Message: refused.Message, Err: refused}
	case errors.As(err, &quiet) && quiet.spoiled > 0:
		e.Kind, e.Message = providers.KindProtocol, fmt.Sprintf("%d answers came that fail the check of their session or form, and none that passes it", quiet.spoiled)
	case errors.As(err, &quiet):
		e.Message = "the BMC does not answer over IPMI (UDP); check its address, that IPMI over LAN is on, and the network between"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.Message = "the time for this call ended before the BMC answered"
	default:
		e.Message = "the BMC cannot be reached over IPMI (UDP); check its address, and that IPMI over LAN is on"
	}
	if mutated && e.Kind == providers.KindUnreachable {
		e.Kind = providers.KindUncertain
		e.Message = "the command was sent and no answer came; read the state before repeating it"
	}
	return e
}

// cause keeps what errors.Is asks for.
func cause(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}

// loginRefused maps a status of the handshake (table 13-15).
func loginRefused(op string, s suite, status types.RmcpStatusCode) *providers.Error {
	kind, why := providers.KindProtocol, "the BMC ended the login"
	switch status {
	case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeInvalidIntegrityCheckValue, types.RmcpStatusCodeInvalidNameLength:
		kind, why = providers.KindUnauthorized, rejectedLogin
	case types.RmcpStatusCodeInvalidRole, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel:
		kind, why = providers.KindForbidden, "the BMC account may not log in at the level that is needed (operator, or administrator to change a password); give it that privilege on the LAN channel"
	case types.RmcpStatusCodeNoResToCreateSess, types.RmcpStatusCodeNoResToCreateSessAtRole:
		kind, why = providers.KindBusy, "the BMC has no free IPMI session"
	case types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg, types.RmcpStatusCodeNoMatchingAuthPayload,
		types.RmcpStatusCodeNoMatchingIntegrityPayload, types.RmcpStatusCodeInvalidConfidentAlg, types.RmcpStatusCodeNoCipherSuiteMatch:
		return noSuite(op, s, fmt.Sprintf(" (status 0x%02x)", uint8(status)))
	case types.RmcpStatusCodeInvalidSessionID, types.RmcpStatusCodeInactiveSessionID:
		kind, why = providers.KindUnavailable, "the BMC forgot the session during the login"
	default: // a status of its own, or one that makes no sense here
	}
	return &providers.Error{Kind: kind, Op: op, Message: fmt.Sprintf("%s (status 0x%02x)", why, uint8(status))}
}

const rejectedLogin = "the BMC rejected the login; no further one is tried, since it may lock the account"

func noSuite(op string, s suite, detail string) *providers.Error {
	why := fmt.Sprintf("the BMC does not offer IPMI cipher suite %d%s; turn it on there", s.id, detail)
	if s.id == CipherSuite17 {
		why += ", or allow suite 3 for this device if it has nothing better"
	}
	return &providers.Error{Kind: providers.KindUnsupported, Op: op, Message: why}
}
