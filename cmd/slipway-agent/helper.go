package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/taskhandlers"
)

// How the process ends when a task asks for it; the systemd units know these.
const (
	exitRestart     = 75 // start again, another version may be in place
	exitUninstalled = 77 // nothing is left to start
)

func exitCode(err error) int {
	switch {
	case errors.Is(err, task.ErrRestart):
		return exitRestart
	case errors.Is(err, task.ErrUninstalled):
		return exitUninstalled
	}
	return 1
}

func helperCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "helper", Short: "Do the tasks that the agent hands over, with root's rights, until stopped", Args: cobra.NoArgs,
		Long: "The privileged half of the agent. It listens on the socket that systemd passes, or on helper_socket of the\n" +
			"configuration, answers root and the user " + taskhandlers.AgentUser + ", checks the control plane's signature of each\n" +
			"task itself, and opens no network connection.",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			uids, gid := agentAccount()
			l, err := listener(cfg, gid)
			if err != nil {
				return err
			}
			return agent.Helper(c.Context(), cfg, version, slog.New(slog.NewTextHandler(os.Stderr, nil)), l, uids, moreHandlers(cfg, cfg.HelperStateDir))
		}}
}

// agentAccount is who may connect besides root; a machine without the account
// has nobody.
func agentAccount() (uids []int, gid int) {
	u, err := user.Lookup(taskhandlers.AgentUser)
	if err != nil {
		return nil, -1
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, -1
	}
	gid, err = strconv.Atoi(u.Gid)
	if err != nil {
		return []int{uid}, -1
	}
	return []int{uid}, gid
}

// firstPassed is the number of the first descriptor that systemd passes.
const firstPassed = 3

// passedSocket takes the socket of systemd's unit. It returns nil when systemd passes none.
func passedSocket() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
		return nil, nil
	}
	f := os.NewFile(firstPassed, "systemd socket")
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take the socket that systemd passes: %w", err)
	}
	return l, nil
}

// listener takes the socket of systemd's unit, or makes one.
func listener(cfg agentconfig.Config, gid int) (net.Listener, error) {
	if l, err := passedSocket(); l != nil || err != nil {
		return l, err
	}
	if cfg.HelperSocket == "" {
		return nil, errors.New("helper_socket is not set in the configuration; set it, or start the helper by its socket unit")
	}
	path := filepath.Join(cfg.Root, cfg.HelperSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	return privileged.Listen(path, gid)
}
