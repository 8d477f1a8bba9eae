// Package stripesim is a simulated account at the payment provider Stripe: an HTTP server that
// speaks Stripe's API (version 2026-05-27.dahlia) under /v1, keeps state, serves the hosted payment
// page, and delivers signed webhooks. No money moves; everything it reports is simulated.
//
// It is written from Stripe's published documentation and OpenAPI description and shares no code
// with any client of Stripe. It is faithful to: form bodies with nested keys; Stripe's error form,
// also for what is not simulated, which is refused and never ignored; ids and prefixes; lists with
// starting_after, ending_before and has_more, newest first; idempotency keys that live 24 hours,
// check the parameters, and replay the first result, errors after the beginning of the execution
// and status 500 included, while errors of validation are not stored; sessions that complete unpaid
// when the payment method is a delayed one; refunds that fail later; disputes; a balance
// transaction for each movement of money; events that are kept for 30 days; deliveries that are
// repeated for three days, may come twice and in another order; signatures with several schemes.
//
// The fees, the times between two deliveries and the length of an identifier are demo choices, not
// measurements. Whether Stripe behaves so in all cases has to be checked once in its test mode.
//
// Start one:
//
//	srv, err := stripesim.New(stripesim.Options{Key: "sk_test_simulated"})
//	addrs, stop, err := srv.Start(ctx, "127.0.0.1:0", "127.0.0.1:0")
//	defer stop()
//	// client: addrs.URL(), scenario control: http://<addrs.Admin>/_sim/
//
// The clock is the simulator's own (sim/hw): a step of it expires sessions, keys and events, and
// repeats deliveries.
//
// Faults are scripts: AddFault or POST /_sim/faults/ on the admin port, which is never the API
// port. FaultNames lists them.
package stripesim
