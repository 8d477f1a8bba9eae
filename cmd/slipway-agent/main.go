// Command slipway-agent is the node agent; agent holds what it does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slipway-agent:", err)
		os.Exit(exitCode(err))
	}
}

// options are the flags that all commands share.
type options struct{ config, root, tools, metadata string }

func root() *cobra.Command {
	var o options
	cmd := &cobra.Command{Use: "slipway-agent", Short: "Slipway's agent on a GPU node", SilenceUsage: true, SilenceErrors: true}
	f := cmd.PersistentFlags()
	f.StringVar(&o.config, "config", "/etc/slipway/agent.yaml", "configuration file")
	f.StringVar(&o.root, "root", "", "read the node below this directory (simulated nodes only)")
	f.StringVar(&o.tools, "tools-path", "", "directories to run programs from, joined by colons")
	f.StringVar(&o.metadata, "metadata-listen", "", "serve the metadata of the allocation on this address (simulated nodes only)")
	cmd.AddCommand(runCommand(&o), helperCommand(&o), enrollCommand(&o), reportCommand(&o), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), version) },
	})
	return cmd
}

func (o *options) load() (agentconfig.Config, error) {
	return agentconfig.Load(o.config, func(c *agentconfig.Config) {
		if o.root != "" {
			c.Root = o.root
		}
		if o.tools != "" {
			c.ToolsPath = o.tools
		}
		if o.metadata != "" {
			c.MetadataListen = o.metadata
		}
	})
}

func (o *options) agent() (*agent.Agent, error) {
	c, err := o.load()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	a, err := agent.New(c, version, log, moreHandlers(c, c.StateDir))
	if err != nil {
		return nil, err
	}
	l, err := passedSocket()
	if err == nil && l == nil && c.MetadataListen != "" {
		l, err = net.Listen("tcp", c.MetadataListen)
	}
	switch {
	case err != nil: // a node without it is better than one without an agent
		log.Error("the metadata of the allocation is not served", "error", err)
	case l != nil:
		a.ServeMetadata(l)
	}
	return a, nil
}

func runCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "run", Short: "Enrol if needed, send heartbeats and take tasks until stopped", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := o.agent()
			if err != nil {
				return err
			}
			return a.Run(c.Context())
		}}
}

func enrollCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "enroll", Short: "Trade the enrolment token for an identity, once", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := o.agent()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			return a.Enroll(ctx)
		}}
}

func reportCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "report", Short: "Print what the agent sees of this machine, as JSON", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(agent.Report(c.Context(), cfg))
		}}
}
