// Package task is the node's side of tasks: it checks that a task was signed by
// the control plane and is meant for this node in this boot, keeps a journal, so
// that a restart knows what was begun from what is done, runs the handler of
// the task's kind, and reports the result until it is acknowledged.
//
// There are two halves, which on a real node are two processes. Loop is the
// half that faces the network: it claims, renews leases and reports, and has no
// rights on the machine. An Executor acts: Local is the one that has journal and
// handlers, package privileged carries it over a unix socket. The executor
// trusts nothing but the signature; a loop that was taken over can invent no
// work.
//
// A handler checks before it acts, so that it may run twice. A handler that may
// not run twice without a check has a Resume of its own, or its task ends as
// "uncertain".
package task
