package main

import "slices"

// raced lists the folders whose tests `make test` runs under the race detector: those where
// goroutines meet. `make proof AREA=race` and AREA=race-e2e race everything. A test holds this list
// against the packages that start goroutines.
func raced() []string {
	return []string{
		"activities/agenttask", "activities/bmc", "activities/drift", "activities/sweep",
		"api/agentapi", "api/boot", "api/ratelimit",
		"db",
		"internal/agent", "internal/agent/durable", "internal/agent/gpupattern",
		"internal/agent/nodework", "internal/agent/privileged", "internal/agent/scrub",
		"internal/agent/selfupdate", "internal/agent/task", "internal/devstack/toolcache",
		"internal/e2e/chaos", "internal/pxenode", "internal/relay", "internal/server", "internal/simnode",
		"internal/telemetry", "internal/temporalx",
		"providers/bmc/bmcsim", "providers/maas/maassim", "providers/ssh",
		"test/run",
		"workflows/stage",
	}
}

// notRaced are packages that start goroutines and are not raced in `make test`, each with the
// reason.
func notRaced() map[string]string {
	return map[string]string{
		"api/rest":                   "its one goroutine ends an event stream, which the raced agentapi tests have too",
		"cmd/slipway-agent":          "main package; internal/agent is raced",
		"cmd/slipway-dev":            "main package of the demo, without tests",
		"internal/bench/rig":         "benchmarks",
		"internal/devstack":          "starts processes; it runs in the end-to-end tests, which proof races",
		"internal/devstack/pg":       "starts a process",
		"internal/devstack/temporal": "starts a process",
		"internal/simhw":             "its machines run in the raced simulators",
		"providers/bmc/ipmisim":      "drives a child process",
		"providers/providertest":     "a suite that the raced provider packages call",
	}
}

// isRaced reports whether a folder's tests run under the race detector in `make test`.
func isRaced(folder string) bool { return slices.Contains(raced(), folder) }
