package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) nodeReissueAgent() *cobra.Command {
	var reason, site string
	var all bool
	var parallel int
	var w watchFlags
	cmd := &cobra.Command{
		Use: "reissue-agent [NODE]", Short: "Give a node's agent a new identity, when it is locked or its certificate ended", Args: cobra.MaximumNArgs(1),
		Long: "A job writes a one-time enrolment token on the node over SSH, restarts the agent and waits for its first heartbeat under the new identity.\n\n" +
			"With --site it does so for the nodes of a site whose agent is locked, silent or has a certificate that ended, or with --all for every one, in a batch.",
		Example: "  slipway node reissue-agent gpu-1 --reason \"restored from an image\" --watch\n  slipway node reissue-agent --site fra1 --reason \"database restored\"",
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "why; it stands in the history and in the audit log (required)")
	f.StringVar(&site, "site", "", "the nodes of this site instead of one node")
	f.BoolVar(&all, "all", false, "with --site: agents that work too")
	f.IntVar(&parallel, "max-parallel", 10, "with --site: nodes at a time")
	w.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if reason == "" || (len(args) == 1) == (site != "") {
			return fail(ExitUsage, "name a node or --site, and say with --reason why")
		}
		if all && site == "" {
			return fail(ExitUsage, "--all goes with --site")
		}
		if site == "" {
			id, err := a.nodeOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := a.api.ReissueAgent(cmd.Context(), id, client.ReissueAgentRequest{Reason: reason})
			return a.followJob(cmd.Context(), r, err, w)
		}
		id, err := a.siteOf(cmd.Context(), site)
		if err != nil {
			return err
		}
		body := client.SiteReissueRequest{SiteID: id, Reason: reason, All: &all, MaxParallel: new(int64(parallel))}
		r, err := a.api.ReissueAgents(cmd.Context(), body)
		if err != nil || !w.on {
			return firstError(err, func() error { return a.showBatch(r) })
		}
		got, err := r.Decode()
		if err != nil {
			return err
		}
		return a.watchBatch(cmd.Context(), got.ID, w)
	})
	return cmd
}

func firstError(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

func (a *app) nodeUpdateAgent() *cobra.Command {
	var reason, version string
	var w watchFlags
	cmd := &cobra.Command{
		Use: "update-agent NODE", Short: "Install a release of the agent on a node, which returns to the old one if the new one sends no heartbeat", Args: cobra.ExactArgs(1),
		Example: "  slipway agent-release add manifest.json manifest.sig https://files.example/slipway-agent\n  slipway node update-agent gpu-1 --version v1.2.3 --reason \"fix of the drain\" --watch",
	}
	cmd.Flags().StringVar(&version, "version", "", "a release that was added, such as v1.2.3 (required)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the history and in the audit log (required)")
	w.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if version == "" || reason == "" {
			return fail(ExitUsage, "say with --version what to install and with --reason why")
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.UpdateAgent(cmd.Context(), id, client.UpdateAgentRequest{Version: version, Reason: reason})
		return a.followJob(cmd.Context(), r, err, w)
	})
	return cmd
}

func (a *app) agentReleaseCommand() *cobra.Command {
	add := &cobra.Command{
		Use: "add MANIFEST SIGNATURE URL", Short: "Add a release: the manifest and its signature as files, and where nodes fetch the program", Args: cobra.ExactArgs(3),
		Long: "The manifest is signed with a key that is kept offline (docs/agent.md, Updates). The agents check the signature; nothing is fetched here.",
		RunE: does(func(cmd *cobra.Command, args []string) error {
			manifest, err := readNamed(args[0])
			if err != nil {
				return err
			}
			signature, err := readNamed(args[1])
			if err != nil {
				return err
			}
			var m struct{ Version string }
			if json.Unmarshal(manifest, &m) != nil || m.Version == "" {
				return fail(ExitUsage, "%s is not the manifest of a release", args[0])
			}
			body := client.AgentReleaseRequest{Manifest: manifest, Signature: signature, BinaryURL: args[2]}
			r, err := a.api.AddAgentRelease(cmd.Context(), m.Version, body)
			if err != nil {
				return err
			}
			return show(a, r, func(got client.AgentRelease) error {
				return a.fields("release", got.Version, "program", got.BinaryURL, "added", a.when(got.CreatedAt))
			})
		}),
	}
	all := &cobra.Command{Use: "list", Short: "List the releases of the agent", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListAgentReleases, nil), 0)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListAgentRelease) error {
			t := a.table("VERSION", "PROGRAM", "ADDED", "BY")
			for _, r := range got.Data {
				t.row(r.Version, r.BinaryURL, a.when(r.CreatedAt), orDash(r.CreatedBy))
			}
			return t.flush()
		})
	})}
	return group("agent-release", "Signed releases of the node agent", add, all)
}
