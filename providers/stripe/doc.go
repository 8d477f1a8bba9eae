// Package stripe takes payments through the payment provider Stripe and implements
// providers.Payments. It also verifies Stripe's webhooks (Verifier).
//
// github.com/stripe/stripe-go speaks the protocol. A guard (guard.go) and the options of its
// backend prevent things that the library does by itself and must not: it follows redirects, reads
// bodies without a limit, tells Stripe about this host, invents idempotency keys, and sleeps
// between retries where nobody can wake it. The meaning of a failure is decided from what happened
// on the wire and from Stripe's own error codes (verdict.go), never from texts.
//
// Each mutation carries a key that the caller chose, so it may be repeated; a few repetitions are
// made here, within the deadline of the call. Stripe stores the first answer with the key, failures
// of its own included, and replays it: then the error is one that providers.IsKeySpent reports.
//
// An event, signed or not, proves nothing about money: whoever credits a payment reads its session
// first, with Payments.Session.
package stripe
