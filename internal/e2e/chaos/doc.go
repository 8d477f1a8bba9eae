// Package chaos generates troubles and lets whole jobs suffer them: each
// activity boundary of a job kind meets each kind of trouble (a crash before or
// after the effect, a lost or doubled answer, a timeout, a killed worker, killed
// database connections, a site that is cut off), alone and in pairs. After each
// case the job's end, the effects counted outside and the invariants of the
// database are compared with what they would be without trouble.
//
// What is generated follows from a seed; a case is one line of text that replays
// it alone. A job kind is a plug (Plug): its points, how a job of it starts, and
// what must hold afterwards. Nothing in the product knows of this package:
// troubles come in through worker interceptors, real processes that are killed,
// terminated database backends, and wires to the simulated site that can be cut.
package chaos
