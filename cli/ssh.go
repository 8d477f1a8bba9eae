package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The answer of a server becomes arguments of a program and a line of a file, so its shape is
// checked.
var (
	userShape   = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	publicShape = regexp.MustCompile(`^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]+={0,2}$`)
)

// sshPort is the port that ssh uses where none is named.
const sshPort = 22

// checkConnection refuses a connection that ssh could understand as something else.
func checkConnection(c client.AllocationConnection) error {
	switch {
	case net.ParseIP(c.Host) == nil && !nameShape.MatchString(c.Host):
		return fail(ExitError, "the server names a host that is none: %q", c.Host)
	case c.Port < 1 || c.Port > 65535:
		return fail(ExitError, "the server names port %d, which is none", c.Port)
	case !userShape.MatchString(c.User):
		return fail(ExitError, "the server names an account that is none: %q", c.User)
	case !publicShape.MatchString(publicKeyOf(c)):
		return fail(ExitError, "the server names no host key, so it cannot be told whether the node is the right one; nothing was sent")
	}
	return nil
}

// publicKeyOf returns the host key without the pattern of its host, "" where the pattern is not
// that of the connection.
func publicKeyOf(c client.AllocationConnection) string {
	key, ok := strings.CutPrefix(c.HostKey, lifecycle.KnownHostsLine(c.Host, int(c.Port), ""))
	if !ok {
		return ""
	}
	return key
}

// sshArguments are those of ssh. It trusts the key of the file and no other, and learns none.
func sshArguments(c client.AllocationConnection, file, identity string, command []string) []string {
	args := []string{
		"-o", `UserKnownHostsFile="` + file + `"`, "-o", "GlobalKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no",
		"-o", "VerifyHostKeyDNS=no", "-o", "CheckHostIP=no", "-p", strconv.FormatInt(c.Port, 10), "-l", c.User,
	}
	if identity != "" {
		args = append(args, "-o", "IdentitiesOnly=yes", "-i", identity) // no key of an agent instead
	}
	return append(append(args, "--", c.Host), command...)
}

func (a *app) sshCommand() *cobra.Command {
	var identity string
	var reason operatorFlag
	var project projectFlag
	cmd := &cobra.Command{
		Use: "ssh ALLOCATION [-- COMMAND...]", Short: "Log in to the node of an allocation", Args: cobra.MinimumNArgs(1),
		Long: "Runs ssh, which must be installed, and lets it trust only the host key that Slipway has read from the node. Your SSH key must be one of the\n" +
			"allocation's. The exit code is that of ssh.",
	}
	cmd.Flags().StringVarP(&identity, "identity", "i", "", "the file of your private key, which ssh reads (default: as ssh chooses)")
	reason.add(cmd)
	project.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.allocationOf(cmd.Context(), args[0], project, reason.because())
		if err != nil {
			return err
		}
		l, err := client.Value(a.api.GetOwnAllocation(cmd.Context(), id, reason.because()))
		if err != nil {
			return err
		}
		if l.Connection == nil {
			return fail(ExitRefused, "allocation %s is %s, so there is nowhere to log in; slipway allocation show follows it", l.ID, l.Status)
		}
		return a.ssh(cmd.Context(), *l.Connection, identity, args[1:])
	})
	return cmd
}

// ssh runs ssh with the pinned host key.
func (a *app) ssh(ctx context.Context, c client.AllocationConnection, identity string, command []string) error {
	if err := checkConnection(c); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slipway-ssh-")
	if err != nil {
		return fmt.Errorf("keep the host key: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(file, []byte(c.HostKey+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the host key: %w", err)
	}
	run := a.RunSSH
	if run == nil {
		run = runSSH
	}
	return run(ctx, sshArguments(c, file, identity, command))
}

// runSSH runs ssh on the terminal of this process and returns its exit code as a failure.
func runSSH(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "ssh", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		return &failure{ended.ExitCode(), errors.New("")}
	case errors.Is(err, exec.ErrNotFound):
		return fail(ExitError, "ssh is not installed, or not in the PATH; install an OpenSSH client")
	}
	return err
}
