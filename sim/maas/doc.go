// Package maassim is a simulated MAAS region controller: an HTTP server that speaks the MAAS 2.0
// REST API at /MAAS/api/2.0/ over the simulated machines of a simhw.Fleet. Everything it reports is
// simulated.
//
// It is written from research on MAAS's own source (3.4 to 3.7) and shares no code with any MAAS
// client, so that it cannot share a client's mistakes. It reproduces: OAuth PLAINTEXT and its error
// texts; form bodies, trailing slashes and the three places an op may stand; numeric statuses and
// the table of transitions, enforced in one place (status.go); the narrower rules of each handler;
// both kinds of HTTP 409; answers rendered before the effect, and effects that stay after an error
// answer; commissioning and deploying that need power and a network boot; "Deployed" that only
// means that user-data was requested; hardware sync that arrives by vendor-data and that user-data
// can override; AUTO links that are not idempotent; events, results and paging.
// testdata/status-operations.txt has what each operation answers in each status.
//
// The region is exact, or it refuses. It simulates what Slipway calls, and what gomaasapi needs to
// allocate, deploy and release a machine. It answers everything else with 501 "not simulated", for
// example tags, bonds, VLAN interfaces and rescue mode.
//
// The durations of commissioning, testing, installing and erasing are chosen for a demo, and not
// measured.
//
// Start one over a fleet:
//
//	srv, err := maassim.New(maassim.Options{Fleet: fleet, APIKey: "consumer:token:secret"})
//	addrs, stop, err := srv.Start(ctx, "127.0.0.1:0", "127.0.0.1:0")
//	defer stop()
//	// client: http://<addrs.API>/MAAS, scenario control: http://<addrs.Admin>/_sim/
//
// Power goes through the machine's BMC, as in MAAS. power_address selects the machine of the fleet;
// power_user and power_pass must be a login that the BMC accepts at that moment.
//
// Faults are scripts: AddFault or POST /_sim/faults/ on the admin port, which is never the API
// port. FaultNames lists them. A fault on a mutating call has a phase: before_commit (nothing
// happened) or after_commit (the effect stays and the answer is lost or an error).
package maassim
