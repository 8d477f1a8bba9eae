package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// decommissions is what the demo's nodes go through after they were onboarded, and
// where each is to end.
var decommissions = []struct {
	mode lifecycle.DecommissionMode
	ends []lifecycle.NodeStatus
}{
	{lifecycle.ModeSoftReset, []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeActive}},
	{lifecycle.ModeReimage, []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeActive}},
	{lifecycle.ModeFull, []lifecycle.NodeStatus{lifecycle.NodeDeleted}},
}

// leave takes the first nodes out of service, each in another mode, as its plan
// says, and the one that boots from the network by its own job. The certificates
// of two are verified offline.
func (o *operator) leave(ctx context.Context, out io.Writer, nodes []*watched, pxe *watched) error {
	if err := o.renewIdentity(ctx, out, nodes[len(nodes)-1]); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nOut of service: a soft reset, a reimage and a full decommission, each started with the hash of its plan. "+
		"The node that boots from the network is deprovisioned: it boots a live system, from which every disk is erased.")
	if err := o.show(ctx, out, "node", "decommission", nodes[0].host, "--mode", string(lifecycle.ModeSoftReset), "--plan"); err != nil {
		return err
	}
	began := time.Now()
	jobs := make([]*watched, 0, len(decommissions))
	for i, l := range decommissions {
		id, err := o.decommission(ctx, nodes[i], l.mode)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\nPOST /api/v1/admin/decommissions  %s %s  ->  202 %s", nodes[i].host, l.mode, id)
		jobs = append(jobs, &watched{ID: id, host: nodes[i].host, vendor: nodes[i].vendor, node: nodes[i].node})
	}
	erased, err := o.deprovision(ctx, out, pxe)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\n\n")
	if err := o.watch(ctx, out, append(slices.Clone(jobs), erased), began); err != nil {
		return err
	}
	for i, j := range jobs {
		if err := o.endsIn(ctx, j, decommissions[i].ends); err != nil {
			return err
		}
	}
	if err := o.endsIn(ctx, erased, []lifecycle.NodeStatus{lifecycle.NodeRetired}); err != nil {
		return err
	}
	if err := o.show(ctx, out, "node", "list"); err != nil {
		return err
	}
	if err := o.proof(ctx, out, jobs[1]); err != nil { // a reimage: every disk is erased
		return err
	}
	return o.proof(ctx, out, erased)
}

// renewIdentity gives the agent of a node in service a new identity, as after a lost one.
func (o *operator) renewIdentity(ctx context.Context, out io.Writer, w *watched) error {
	fmt.Fprintln(out, "\nAn agent that lost its identity gets a new one over the node's pinned SSH connection.")
	if err := o.show(ctx, out, "node", "reissue-agent", w.host, "--reason", "the demo", "--watch"); err != nil {
		return err
	}
	if err := o.show(ctx, out, "node", "actions", w.host, "--limit", "4"); err != nil {
		return err
	}
	return o.show(ctx, out, "node", "drives", w.host)
}

func (o *operator) decommission(ctx context.Context, w *watched, mode lifecycle.DecommissionMode) (string, error) {
	ask := client.DecommissionPlanRequest{NodeID: w.node, Mode: client.DecommissionPlanRequestMode(mode)}
	plan, err := client.Value(o.api.PlanNewDecommission(ctx, ask))
	if err != nil {
		return "", err
	}
	j, err := client.Value(o.api.CreateDecommission(ctx, client.DecommissionRequest{
		NodeID: w.node, Mode: client.DecommissionRequestMode(mode), PlanHash: &plan.PlanHash, Reason: new("the demo"),
	}))
	return j.ID, err
}

func (o *operator) endsIn(ctx context.Context, w *watched, ends []lifecycle.NodeStatus) error {
	n, err := client.Value(o.api.GetNode(ctx, w.node))
	if err != nil {
		return err
	}
	for _, s := range ends {
		if n.Status == string(s) {
			return nil
		}
	}
	return fmt.Errorf("node %s is %s, and should be %s", w.host, n.Status, ends[0])
}

// proof shows a node's history and verifies its certificate as an auditor would:
// from a file, without a server.
func (o *operator) proof(ctx context.Context, out io.Writer, w *watched) error {
	for _, args := range [][]string{{"node", "history", w.node}, {"certificate", "list", w.node}} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	file := filepath.Join(o.home, w.host+".json")
	bundle, err := o.command(ctx, "certificate", "export", w.node).Output()
	if err != nil {
		return fmt.Errorf("slipway certificate export: %w", err)
	}
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n$ slipway certificate export %s > %s\n", w.node, file)
	// Without a key the program shows the key of the file, and says that nobody has named it as
	// trusted.
	said, err := o.command(ctx, "certificate", "verify", file).CombinedOutput()
	key := fingerprint.FindString(string(said))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitNotTrusted || key == "" {
		return fmt.Errorf("slipway certificate verify trusts a key that nobody has named: %w: %s", err, said)
	}
	return o.show(ctx, out, "certificate", "verify", file, "--key", key)
}

// fingerprint is that of a signing key.
var fingerprint = regexp.MustCompile(`[0-9a-f]{64}`)
