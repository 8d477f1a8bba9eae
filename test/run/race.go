package main

import "slices"

// raced lists the folders whose tests `make test` runs under the race detector: packages that start
// goroutines or share values between them, and that link neither a database's client nor Temporal's
// SDK. With those a raced test takes minutes, most of them to compile and to wait for a server.
// `make proof AREA=race`, AREA=race-e2e and AREA=race-chaos race everything. A test compares this
// list with the sources.
func raced() []string {
	return []string{
		"agent/atomicfile", "agent/gpupattern", "agent/metadata", "agent/privileged", "agent/selfupdate", "agent/task",
		"agent/taskhandlers", "agent/toolrunner",
		"api/ratelimit", "assembly/devserver/identity", "assembly/devserver/toolcache",
		"internal/listener", "internal/nodeca", "internal/telemetry", "internal/temporalx/payloadcodec",
		"providers/bmc/ipmi", "providers/bmc/redfish", "providers/fake", "providers/instance/mock", "providers/instance/scaleway",
		"providers/maas", "providers/mail", "providers/secrets", "providers/ssh", "providers/stripe", "providers/webhook",
		"sim/maas", "sim/redfish", "sim/stripe", "test/runenv",
	}
}

// notRaced are packages that start goroutines or use sync, link no client of a server, and are not
// raced in `make test`, each with the reason.
func notRaced() map[string]string {
	return map[string]string{
		"agent/scrub":          "it erases real disks, of which the detector makes the costliest test of all; proof race races it",
		"cmd/slipway-agent":    "main package; the packages of agent are raced",
		"docs":                 "pages that are made once",
		"proto/gen/slipway/v1": "generated; its use of sync is the library's",
		"sim/cloud":            "without tests; the raced providers/instance/scaleway uses it",
		"sim/control":          "without tests; the raced sim/maas and sim/stripe use it",
		"sim/hw":               "without tests; its machines run in the raced simulators",
		"sim/ipmi":             "without tests; it drives a child process",
		"sim/kube":             "without tests; its clients, over client-go, are not raced",
		"test/bench/noop":      "benchmarks",
		"test/conformance":     "without tests; the raced provider packages call it",
		"test/nameserver":      "without tests",
		"test/portal/browser":  "drives a process; it runs in the tests of the portal",
		"test/sshd":            "without tests; the raced providers/ssh uses it",
		"test/stripespec":      "without tests; the raced sim/stripe and providers/stripe use it",
		"test/workerhost":      "without tests",
	}
}

// isRaced reports whether a folder's tests run under the race detector in `make test`.
func isRaced(folder string) bool { return slices.Contains(raced(), folder) }
