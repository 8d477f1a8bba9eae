package scaleway

import (
	"errors"
	"net/http"

	"github.com/scaleway/scaleway-sdk-go/scw"

	"github.com/slipway-cloud/slipway/providers"
)

const maxMessage = 500

// statusClientClosed is the answer of a proxy that gave up on a request that it may have forwarded.
const statusClientClosed = 499

// verdict turns an error of the SDK into one of the providers. The type of an error decides where
// it has one, and otherwise the status of the last answer.
func (c *client) verdict(op string, mutates bool, err error) error {
	if err == nil {
		return nil
	}
	kind := typedKind(err)
	if kind == "" {
		kind = c.statusKind(mutates)
	}
	if providers.IsRefusedAddress(err) {
		kind = providers.KindInvalid
	}
	text := c.redaction.Clean(err.Error())
	var quota *scw.QuotasExceededError
	if errors.As(err, &quota) && (len(quota.Details) == 0 || quota.Details[0].Quota == 0) {
		text = "a quota of the account is used up; the provider does not say which" // it would print 0 of 0
	}
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	return &providers.Error{Kind: kind, Op: "cloud." + op, Status: c.wire.status, Message: text, Err: err}
}

func is[T error](err error) bool {
	var typed T
	return errors.As(err, &typed)
}

// typedKind returns the kind of the SDK's own errors, "" for none.
func typedKind(err error) providers.Kind {
	var precondition *scw.PreconditionFailedError
	switch {
	case is[*scw.ResourceNotFoundError](err):
		return providers.KindNotFound
	case is[*scw.QuotasExceededError](err):
		return providers.KindQuota
	case is[*scw.OutOfStockError](err):
		return providers.KindCapacity
	case is[*scw.TransientStateError](err):
		return providers.KindBusy
	case errors.As(err, &precondition):
		if precondition.Precondition == "resource_still_in_use" {
			return providers.KindBusy
		}
		return providers.KindStateConflict
	case is[*scw.InvalidArgumentsError](err):
		return providers.KindInvalid
	case is[*scw.DeniedAuthenticationError](err):
		return providers.KindUnauthorized
	case is[*scw.PermissionsDeniedError](err):
		return providers.KindForbidden
	case is[*scw.ResourceLockedError](err), is[*scw.ResourceExpiredError](err):
		return providers.KindStateConflict
	}
	return ""
}

// statusKind returns the kind of an error that has no type. An order that was sent and got no
// answer, or one that says nothing of the order, may have taken effect.
func (c *client) statusKind(mutates bool) providers.Kind {
	status, unknown := c.wire.status, providers.KindUnavailable
	if mutates {
		unknown = providers.KindUncertain
	}
	switch {
	case status == 0 && c.wire.sent:
		if !mutates {
			return providers.KindUnreachable
		}
		return unknown
	case status == 0:
		return providers.KindUnreachable
	case status >= 200 && status < 300:
		if mutates {
			return unknown
		}
		return providers.KindProtocol
	case status >= 300 && status < 400:
		return providers.KindForeign
	case status == http.StatusTooManyRequests:
		return providers.KindUnavailable
	case status == http.StatusUnauthorized:
		return providers.KindUnauthorized
	case status == http.StatusForbidden:
		return providers.KindForbidden
	case status == http.StatusNotFound:
		return providers.KindNotFound
	case status == http.StatusConflict:
		return providers.KindBusy
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == statusClientClosed:
		return unknown
	case status < 500:
		return providers.KindInvalid
	}
	return unknown
}
