//go:build !linux

package simnode

import "syscall"

func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
