// Package cli is the command line client of Slipway's REST and gRPC APIs. It knows the APIs and
// nothing behind them. A test can run it in its own process: Run takes everything that a process
// has from an Env.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// The exit codes, distinct so that scripts can tell them apart.
const (
	ExitOK           = 0
	ExitError        = 1
	ExitUsage        = 2
	ExitNotFound     = 3
	ExitRefused      = 4
	ExitUnauthorised = 5
	ExitJobFailed    = 6
	ExitUnreachable  = 7
	ExitNotClean     = 8
	ExitNotTrusted   = 9
)

const exitHelp = `Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 4 refused or in conflict, 5 not signed in or not allowed,
6 a watched job failed, was cancelled or requires operator action, 7 the server cannot be reached, 8 genuine certificates that do not prove a node clean,
9 certificates that are consistent, while no trusted key was named.`

// Env is what a process has.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Terminal says that Out is one: watching then redraws.
	Terminal bool
	// ConfigPath keeps the contexts; "" is ~/.config/slipway/config.yaml.
	ConfigPath string
	Client     *http.Client // nil: one that follows no redirect
	Version    string
	// OpenBrowser opens an address in a browser; nil opens that of this machine, from a terminal
	// only.
	OpenBrowser func(address string)
	// PortOwner returns the user whose program has the far end of a connection between two
	// addresses of this machine; nil asks the system.
	PortOwner func(here, there string) (uid int, known bool)
	// RunSSH runs ssh with arguments; nil runs the one of this machine.
	RunSSH func(ctx context.Context, args []string) error
}

// System is the Env of this process.
func System(version string) Env {
	info, err := os.Stdout.Stat()
	return Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Version: version,
		Terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb",
	}
}

// app is one run.
type app struct {
	Env
	context string
	output  string
	key     string
	timeout time.Duration
	api     *client.Client
	signing *account // what login signs in to, before it is kept
	wide    bool     // print whole ids in tables
	// irreversible is true while a command runs whose effect cannot be undone; command is its path.
	irreversible bool
	command      string
	yes          bool              // do not ask
	principal    *client.Principal // who the server says that we are, once it was asked
	projectNames map[string]string // by id, once they were read
	answers      *bufio.Reader     // reads In for questions
	raw          bool              // print texts unchanged
	utc          bool              // print times, not their distance from now
	skew         time.Duration     // how far the server's clock is ahead of this one
	screen       io.Writer         // Out without textWriter, for control sequences of our own
}

// failure is an error with the exit code it ends in.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, e Env, args []string) int {
	if e.Getenv == nil {
		e.Getenv = func(string) string { return "" }
	}
	if e.ConfigPath == "" {
		e.ConfigPath = configPath(e.Getenv)
	}
	a := &app{Env: e, screen: e.Out}
	a.Out, a.Err = &textWriter{w: e.Out, raw: &a.raw}, &textWriter{w: e.Err, raw: &a.raw}
	api, err := a.newAPI()
	if err != nil {
		fmt.Fprintf(a.Err, "slipway: %v\n", err)
		return ExitError
	}
	a.api = api
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	var f *failure
	if !errors.As(err, &f) { // cobra's own: arguments and flags
		fmt.Fprintf(a.Err, "slipway: %v\nSee %s --help.\n", err, ran.CommandPath())
		return ExitUsage
	}
	if f.err.Error() != "" {
		fmt.Fprintf(a.Err, "slipway: %v\n", f.err)
	}
	return f.code
}

func configPath(getenv func(string) string) string {
	if p := getenv("SLIPWAY_CONFIG"); p != "" {
		return p
	}
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(getenv("HOME"), ".config")
	}
	return filepath.Join(dir, "slipway", "config.yaml")
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "slipway", Short: "The command line of Slipway, the control plane of a GPU cloud",
		Long: "Begin with: slipway login --server URL\n\nWherever an id is taken, a name is too, and so is the beginning of an id: 8 characters or more behind its prefix,\n" +
			"such as prj_01a20864. A node is named by its hostname, a job by the hostname of its node, a finding of drift by NODE\n" +
			"or NODE/DETECTOR. What several resources match is refused, with a list of them. A text that begins like an id is never\n" +
			"a name. Commands that destroy something ask before they act on the beginning of an id, unless --yes is given.\n" +
			"slipway use PROJECT sets the project of commands that name none; SLIPWAY_PROJECT and --project win over it.\n" +
			"slipway completion --help tells how a shell completes them.\n\n" + exitHelp,
		SilenceUsage: true, SilenceErrors: true, Version: a.Version,
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.context, "context", "", "context to use instead of the current one")
	f.StringVarP(&a.output, "output", "o", "table", "table, wide (a table with whole ids), json or yaml")
	f.StringVar(&a.key, "idempotency-key", "", "key of this request; repeating it with the same key cannot do it twice (default: a new one)")
	f.BoolVar(&a.raw, "raw", false, "print texts as they are stored; without it control and invisible characters are replaced, as they can change what a terminal shows")
	f.BoolVar(&a.utc, "utc", false, "print times in UTC; without it tables say how long ago they were")
	f.DurationVar(&a.timeout, "request-timeout", time.Minute, "how long one request may take")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.api.Timeout = a.timeout
		if err := checkFlags(cmd); err != nil {
			return err
		}
		if a.output == "wide" {
			a.output, a.wide = "table", true
		}
		if a.output != "table" && a.output != "json" && a.output != "yaml" {
			return fmt.Errorf("--output must be table, wide, json or yaml, not %q", a.output)
		}
		a.readIrreversible(cmd)
		return nil
	}
	root.AddCommand(
		a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.contextCommand(), a.useCommand(), a.secretCommand(), a.siteCommand(), a.profileCommand(), a.skuCommand(), a.roceCommand(),
		a.nodeCommand(), a.batchCommand(), a.jobCommand(), a.bmcCommand(), a.rackDeviceCommand(), a.tokenCommand(), a.attentionCommand(), a.certificateCommand(), a.auditCommand(), a.taskCommand(), a.driftCommand(), a.agentReleaseCommand(),
		a.decommissionCommand(), a.installWorkflowCommand(), a.deviceGroupCommand(),
		a.billingAccountCommand(), a.projectCommand(), a.memberCommand(), a.invitationCommand(), a.keyCommand(), a.projectTokenCommand(), a.quotaCommand(), a.catalogueCommand(),
		a.balanceCommand(), a.usageCommand(), a.ledgerCommand(), a.statementCommand(), a.budgetCommand(), a.billingCommand(), a.priceCommand(), a.adjustmentCommand(), a.topupCommand(), a.paymentCommand(), a.instanceCommand(),
		a.webhookCommand(), a.noticeCommand(), a.allocationCommand(), a.sshCommand(),
		a.machineCommand(), a.planCommands(), a.runCommand(), a.campaignCommand(), a.clusterCommand(),
	)
	root.SetOut(a.Out)
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil { // cobra's own shows its help for a shell that it does not know
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainFlagError(err) })
	guardIrreversible(root)
	refuseBlanks(root)
	a.completeNames(root)
	return root
}

// group is a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() }}
	c.AddCommand(children...)
	return c
}

// does wraps what a command does, so that its errors are told from wrong usage.
func does(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return asFailure(run(cmd, args))
	}
}
