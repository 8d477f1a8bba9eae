// Package redfishsim is a Redfish service for one simulated machine. It keeps
// state, moves the power and the boot override of the simhw.Machine behind it,
// and behaves as one vendor does: five personalities, each with the rules that
// made clients fail in the field.
//
// It speaks real HTTP on its own port and takes fault scripts in Go or on a
// separate admin port. A mutating fault has two forms: before the effect
// (unavailable) and after it (lost_answer, bmc_reset), since the second is
// where real systems hurt. Durations are virtual, on the machine's clock.
//
// It imports the standard library and simhw only. It shares no code with any
// client, so that a client's misreading of Redfish is not repeated here; its
// tests use two independent clients, redfishtool and sushy.
//
// Tree serves a recorded mockup tree read-only instead.
package redfishsim
