// Package record holds the shapes of JSON columns that no other package has:
// generated code and package db both need them.
package record

import "github.com/slipway-cloud/slipway/lifecycle/spec"

// Labels are free key-value marks of a node.
type Labels map[string]string

// Headers are the response headers that a replayed answer repeats.
type Headers map[string]string

// RoCEPorts are the RoCE interfaces of one host.
type RoCEPorts []spec.RoCEPort

// EntryKind is the kind of an audit row.
type EntryKind string

// The kinds of audit row. Transitions are written by the commit point only.
const (
	EntryTransition  EntryKind = "transition"
	EntryAction      EntryKind = "action"      // an operator's action on a job, also a refused one
	EntryCall        EntryKind = "call"        // a call that changed something outside
	EntryObservation EntryKind = "observation" // something seen that an operator should know
)
