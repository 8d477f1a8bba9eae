package stripesim

import (
	"fmt"
	"net/http"
)

// apiError is an answer in Stripe's error form.
type apiError struct {
	status  int
	kind    string // "type" in the answer
	code    string
	param   string
	message string
	// executed says that the endpoint had begun: the answer is stored with the idempotency key.
	executed bool
}

func (e *apiError) Error() string { return e.message }

// object renders the error as Stripe does.
func (e *apiError) object(requestID string) object {
	body := object{"message": e.message, "type": e.kind, "request_log_url": "https://dashboard.stripe.com/logs/" + requestID}
	if e.code != "" {
		body["code"], body["doc_url"] = e.code, "https://stripe.com/docs/error-codes/"+e.code
	}
	if e.param != "" {
		body["param"] = e.param
	}
	return object{"error": body}
}

const (
	kindInvalid     = "invalid_request_error"
	kindAPI         = "api_error"
	kindIdempotency = "idempotency_error"
)

// invalid is a refusal of the parameters, before anything was done.
func invalid(code, param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: kindInvalid, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

// refusal is a refusal by the state, after the endpoint had begun.
func refusal(code, param, format string, args ...any) *apiError {
	e := invalid(code, param, format, args...)
	e.executed = true
	return e
}

// missing is the answer for an object that does not exist: 404 for the object of the path or of a
// parameter.
func missing(kind, id, param string) *apiError {
	e := refusal("resource_missing", param, "No such %s: '%s'", kind, id)
	e.status = http.StatusNotFound
	return e
}

// notSimulated refuses what Stripe can do and this simulator cannot, in Stripe's form.
func notSimulated(param, what string) *apiError {
	return invalid("parameter_invalid_not_simulated", param, "stripesim does not simulate %s.", what)
}

func unauthorized(key string) *apiError {
	e := &apiError{status: http.StatusUnauthorized, kind: kindInvalid}
	if key == "" {
		e.message = "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."
		return e
	}
	e.message = "Invalid API Key provided: " + masked(key)
	return e
}

// masked shows the beginning and the last four characters of a key, as Stripe does.
func masked(key string) string {
	if len(key) <= 12 {
		return "****"
	}
	return key[:8] + "****" + key[len(key)-4:]
}

// internalError is Stripe's answer to a failure of its own.
func internalError(status int) *apiError {
	return &apiError{
		status: status, kind: kindAPI, executed: true,
		message: "An unknown error occurred. If you have any questions we can help at https://support.stripe.com/.",
	}
}
