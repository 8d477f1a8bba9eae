package main

import "slices"

// raced lists the folders whose tests `make test` runs under the race detector: packages that start
// goroutines or share values between them. `make proof AREA=race` and AREA=race-e2e race
// everything. A test compares this list with the sources.
func raced() []string {
	return []string{
		"activities/agenttask", "activities/billing", "activities/bmc", "activities/drift", "activities/instance", "activities/projection",
		"activities/sweep",
		"api/agentapi", "api/boot", "api/op", "api/portal", "api/ratelimit", "api/webhook",
		"db", "db/drift",
		"agent", "agent/atomicfile", "agent/gpupattern", "agent/metadata",
		"agent/taskhandlers", "agent/toolrunner", "agent/privileged",
		"agent/selfupdate", "agent/task", "assembly/devserver/identity", "assembly/devserver/toolcache", "loops/machineprobe",
		"test/billing", "test/chaos", "internal/nodeca", "sim/pxe", "assembly/server/relay",
		"assembly/server", "assembly/server/deliver", "providers/webhook", "providers/mail", "internal/signing", "internal/listener", "sim/node", "internal/telemetry",
		"internal/temporaltls", "internal/temporalx", "internal/temporalx/payloadcodec",
		"sim/redfish", "providers/bmc/ipmi", "providers/bmc/redfish", "providers/maas",
		"sim/maas", "sim/stripe", "providers/fake", "providers/stripe", "providers/secrets", "providers/ssh",
		"providers/instance/mock", "providers/instance/scaleway",
		"test/run", "test/runenv",
		"workflows/stage",
	}
}

// notRaced are packages that start goroutines or use sync and are not raced in `make test`, each
// with the reason.
func notRaced() map[string]string {
	return map[string]string{
		"agent/scrub":                 "it erases real disks, of which the detector makes the costliest test of all; proof race races it",
		"activities/login":            "without tests; the raced activities/bmc uses it",
		"api/grpc":                    "its streams follow the feed of api/op, which is raced; proof race races them",
		"cli":                         "sign-in waits for one goroutine over a channel; proof race races it",
		"docs":                        "pages that are made once; the raced api/op serves them",
		"api/agentapi/agentapitest":   "without tests; the raced agent packages use it",
		"cmd/slipway-agent":           "main package; agent is raced",
		"cmd/slipway-dev":             "main package of the demo",
		"db/dbtest":                   "the raced packages use it",
		"test/bench/noop":             "benchmarks",
		"test/bench/rig":              "benchmarks",
		"test/nameserver":             "without tests; the raced assembly/server/deliver uses it",
		"test/portal/browser":         "drives a process; it runs in the tests of the portal",
		"test/sshd":                   "without tests; the raced providers/ssh and activities/machine use it",
		"test/stack":                  "starts processes; it runs in the end-to-end tests, which proof races",
		"assembly/devserver/pg":       "starts a process",
		"assembly/devserver/temporal": "starts a process",
		"proto/gen/slipway/v1":        "generated; its use of sync is the library's",
		"sim/control":                 "without tests; the raced sim/maas and sim/stripe use it",
		"sim/cloud":                   "without tests; the raced providers/instance/scaleway uses it",
		"test/workerhost":             "without tests; those of providers/instance/worker and workflows/instance use it",
		"test/stripespec":             "without tests; the raced sim/stripe and providers/stripe use it",
		"sim/hw":                      "without tests; its machines run in the raced simulators",
		"sim/ipmi":                    "without tests; it drives a child process",
		"test/conformance":            "without tests; the raced provider packages call it",
		"loops/clustersync":           "its clients, over client-go, are not raced",
		"sim/kube":                    "without tests; its clients, over client-go, are not raced",
		"workflows/stage/stagetest":   "without tests; the tests of the raced workflows/stage use it",
	}
}

// isRaced reports whether a folder's tests run under the race detector in `make test`.
func isRaced(folder string) bool { return slices.Contains(raced(), folder) }
