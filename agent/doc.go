// Package agent is the program on each node: it enrols once with a one-time
// token, renews its certificate, sends heartbeats with what it sees of the
// hardware, and does the tasks that the control plane signs (packages task,
// taskhandlers, selfupdate, scrub). On a real node it is two processes, of which the
// one that faces the network has no rights (package privileged). It takes no
// shell commands from the server. Its configuration file is package agentconfig; it
// starts programs through package toolrunner.
//
// All that it reads lies below a configurable root and all that it runs is
// found in a configurable list of directories, so that the same binary with the
// same parsers runs on a simulated node.
package agent
