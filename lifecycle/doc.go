// Package lifecycle decides. It holds, as pure values, every state of every resource, the
// transitions between them, who may cause each one and what must be true first; the operator
// actions on a job; the failure classes; and how progress is counted. It imports only the standard
// library, has no clock and does no I/O. The database enforces these rules, workflows follow them,
// and docs/states is generated from them.
package lifecycle

//go:generate go test . -run TestGeneratedPagesAreCurrent -update
