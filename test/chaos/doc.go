// Package chaos injects generated faults into whole jobs. Each activity boundary of a job kind
// meets each kind of fault (a crash before or after the effect, a lost or doubled answer, a
// timeout, a killed worker, killed database connections, a site that cannot be reached), alone and
// in pairs. After each case the job's end, the effects counted outside and the invariants of the
// database are compared with those of a run without faults.
//
// The generated cases follow from a seed; a case is one line of text that plays it again alone. A
// ScenarioSet describes a job kind: its points, how a job of it starts, and what must hold
// afterwards. An elastic run (RunElastic) plays all job kinds for a given time. Nothing in the
// product knows of this package: faults come in through worker interceptors, real processes that
// are killed, terminated database backends, and connections to the simulated site that can be cut.
package chaos
