package main

import "slices"

// raced lists the folders whose tests `make test` runs under the race detector: packages that start
// goroutines or share values between them. `make proof AREA=race` and AREA=race-e2e race everything.
// A test compares this list with the sources.
func raced() []string {
	return []string{
		"activities/agenttask", "activities/bmc", "activities/drift", "activities/projection",
		"activities/sweep",
		"api/agentapi", "api/boot", "api/ratelimit", "api/rest",
		"db",
		"internal/agent", "internal/agent/durable", "internal/agent/gpupattern",
		"internal/agent/nodework", "internal/agent/privileged", "internal/agent/scrub",
		"internal/agent/selfupdate", "internal/agent/task", "internal/devstack/toolcache",
		"internal/e2e/chaos", "internal/nodeca", "internal/pxenode", "internal/relay",
		"internal/server", "internal/signing", "internal/simnode", "internal/telemetry",
		"internal/temporalx",
		"providers/bmc/bmcsim", "providers/bmc/ipmi", "providers/bmc/redfish", "providers/maas",
		"providers/maas/maassim", "providers/secrets", "providers/ssh",
		"test/run",
		"workflows/stage",
	}
}

// notRaced are packages that start goroutines or use sync and are not raced in `make test`, each
// with the reason.
func notRaced() map[string]string {
	return map[string]string{
		"api/agentapi/agentapitest":  "without tests; the raced agent packages use it",
		"cmd/slipway-agent":          "main package; internal/agent is raced",
		"cmd/slipway-dev":            "main package of the demo",
		"db/dbtest":                  "the raced packages use it",
		"internal/bench/noop":        "benchmarks",
		"internal/bench/rig":         "benchmarks",
		"internal/devstack":          "starts processes; it runs in the end-to-end tests, which proof races",
		"internal/devstack/pg":       "starts a process",
		"internal/devstack/temporal": "starts a process",
		"internal/simhw":             "without tests; its machines run in the raced simulators",
		"providers/bmc/ipmisim":      "without tests; it drives a child process",
		"providers/providertest":     "without tests; the raced provider packages call it",
	}
}

// isRaced reports whether a folder's tests run under the race detector in `make test`.
func isRaced(folder string) bool { return slices.Contains(raced(), folder) }
