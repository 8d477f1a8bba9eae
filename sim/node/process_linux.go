package simnode

import "syscall"

// groupAttributes: a group of its own, and the end with the simulation.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
