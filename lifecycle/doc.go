// Package lifecycle decides. It holds, as pure values, every state of every
// resource, the transitions between them, who may cause each one and what must
// be true first; the operator actions on a job; the failure classes; and how
// progress is counted. It imports the standard library only, has no clock and
// does no I/O: the database enforces what is written here, workflows follow it
// and docs/states is generated from it.
package lifecycle

//go:generate go test . -run TestGeneratedPagesAreCurrent -update
