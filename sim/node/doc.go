// Package simnode is what a SIMULATED machine does once its operating system
// is up. Nothing in it is a real GPU server, and all that it reports says so.
//
// It listens to a simhw.Machine. When the installed system comes up it lays out
// the node's files below a directory, applies user-data and vendor-data as
// cloud-init would, answers ssh under the host key of user-data, and starts the
// real slipway-agent program on those files. When the system goes down, both
// end. So the agent, its parsers, enrolment, heartbeats and ssh are the real
// ones; the hardware below them is made up.
//
// The agent's changes to those files count as on a real node: sshd takes the keys of accounts of
// its passwd, and a login ends with the process that stands for it. The programs that a tenant
// looks around with (os-release, uname, uptime, dmesg, lscpu, lspci, nvidia-smi and others)
// describe this machine and this installation, not the machine that runs the simulation.
//
// It reads user-data on its own and shares no code with internal/cloudinit,
// which writes it.
//
// A simulated node has no file system of its own: what runs on it runs as a
// process of this machine. Programs that would change this machine (reboot,
// mount, apt-get and the like) are replaced by ones that act on the simulated
// machine or refuse.
package simnode
