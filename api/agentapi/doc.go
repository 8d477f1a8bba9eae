// Package agentapi is the port that node agents talk to: enrolment, renewal of
// certificates and heartbeats, over TLS 1.3 with client certificates of the
// nodes' own CA (internal/nodeca).
//
// An agent enrols once with a one-time token that was issued for one node.
// From then on its certificate says who it is, and each request looks up
// whether that node may still speak. Heartbeats are gathered for up to a second
// and written in one statement a process; they never touch Temporal.
package agentapi
