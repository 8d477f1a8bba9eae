// Package noop is an outside world that has already done whatever it is asked:
// a MAAS region, BMCs and nodes behind the provider interfaces, in memory and
// without waiting. The benchmarks measure Slipway itself over it, and the replay
// tests record histories over it. It imitates no device's habits; the simulators
// under providers/ do that.
package noop

// The secrets of the noop world: distinctive, so that a test can look for them where they must not
// be.
const (
	APIKey       = "noop-consumer:noop-token:noop-maas-key-secret"
	BMCUser      = "slipway"
	BMCPassword  = "noop-bmc-password-secret"
	MachineToken = "noop-machine-token-secret"
)

// Values are the values above that must appear in no history.
func Values() []string { return []string{APIKey, "noop-maas-key-secret", BMCPassword, MachineToken} }
