//go:build !linux

package pg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// identity is who the server runs as: outside Linux always the current user.
type identity struct{}

func chooseIdentity(context.Context, string, string) (identity, error) {
	if os.Geteuid() == 0 {
		return identity{}, errors.New("PostgreSQL refuses to run as root: run this as an ordinary user")
	}
	return identity{}, nil
}

func (identity) apply(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{} }

func (identity) own(string) error { return nil }
