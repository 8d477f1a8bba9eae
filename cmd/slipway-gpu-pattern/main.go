// Command slipway-gpu-pattern says what is in the memory of this machine's GPUs
// and overwrites it; agent/gpupattern holds what it does.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/agent/gpupattern"
	"github.com/slipway-cloud/slipway/agent/gpupattern/cuda"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	if err := root(func() (gpupattern.Driver, error) { return cuda.Open() }).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "slipway-gpu-pattern:", err)
		os.Exit(1)
	}
}

func root(open func() (gpupattern.Driver, error)) *cobra.Command {
	var asJSON, plant, look bool
	cmd := &cobra.Command{
		Use: "slipway-gpu-pattern", Short: "Look into the memory of all GPUs, overwrite it and read it back", Args: cobra.NoArgs, Version: version,
		Long: "Takes nearly all memory of each GPU, looks for what is not zero, fills it with a pattern and its inverse, reads both back and\n" +
			"leaves zeros. Whether a GPU is in order is in what it writes; it fails only when nothing could be looked at.",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			mode := gpupattern.Check
			switch {
			case plant:
				mode = gpupattern.Plant
			case look:
				mode = gpupattern.Look
			}
			d, err := open()
			if err != nil {
				return err
			}
			r, err := gpupattern.Run(d, mode, version)
			if err != nil {
				return err
			}
			return write(c.OutOrStdout(), r, asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "write JSON, as the agent reads it")
	f.BoolVar(&plant, "plant", false, "fill the memory and leave the pattern there, to look for it afterwards")
	f.BoolVar(&look, "look", false, "look and change nothing")
	cmd.MarkFlagsMutuallyExclusive("plant", "look")
	return cmd
}

func write(w io.Writer, r gpupattern.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	for _, g := range r.GPUs {
		fmt.Fprintf(w, "%s: %d of %d bytes looked at, something left: %s, pages of an earlier pattern: %d, read back: %s\n", g.UUID, g.Checked, g.Total, say(g.Residue), g.PatternPages, say(g.Match))
		if g.Error != "" {
			fmt.Fprintf(w, "  %s\n", g.Error)
		}
	}
	return nil
}

func say(b *bool) string {
	switch {
	case b == nil:
		return "not known"
	case *b:
		return "yes"
	}
	return "no"
}
