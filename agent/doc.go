// Package agent is the program on each node: it enrols once with a one-time token, renews its
// certificate, sends heartbeats with what it sees of the hardware, and does the tasks that the
// control plane signs (packages task, taskhandlers, selfupdate, scrub). On a real node it is two
// processes. The one that talks to the network has no privileges (package privileged). It takes no
// shell commands from the server. Its configuration file is package agentconfig; it starts programs
// through package toolrunner.
//
// It reads only files below a configurable root, and runs only programs from a configurable list of
// directories. So the same binary with the same parsers runs on a simulated node.
package agent
