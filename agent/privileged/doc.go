// Package privileged parts the agent in two: the process that faces the network
// runs without rights, and a second one with root's does the tasks. They speak
// over a unix socket, one request a connection, lines of JSON.
//
// The second process gets the task as the control plane signed it. It checks
// signature and fence again, with keys from a file that only root writes, a
// node id from a configuration that only root writes, and the boot id and the
// highest generation that it has seen itself. So whoever takes over the
// network-facing process can hold back tasks and results, and invent none.
package privileged
