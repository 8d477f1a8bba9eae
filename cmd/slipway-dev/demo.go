package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/stack"
)

// demoSpeed makes a quarter of an hour of installing take some seconds.
const demoSpeed = 120

// The demo's machines: four onboarded singly, the fourth of them as a node for customers, and three
// in a batch.
const (
	demoSingles  = 4
	demoMachines = 7
	demoLimit    = 5 * time.Minute
)

func demoCommand() *cobra.Command {
	var logFile string
	var searchSecrets bool
	cmd := &cobra.Command{
		Use: "demo", Args: cobra.NoArgs,
		Short: "Onboard simulated servers, lend one to two customers, take some out of service again, show how it goes, and end",
	}
	cmd.Flags().StringVar(&logFile, "log", "", "write Slipway's own log to this file")
	cmd.Flags().BoolVar(&searchSecrets, "search-secrets", false, "at the end, search histories, database, logs and output for the secrets of the run")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		var logs []io.Writer
		if logFile != "" {
			f, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			defer f.Close() //nolint:errcheck // written line by line
			logs = append(logs, f)
		}
		var search *secretSearch
		if searchSecrets {
			var err error
			if search, err = newSecretSearch(); err != nil {
				return err
			}
			defer search.close()
			logs, out = append(logs, search.log), io.MultiWriter(out, search.printed)
		}
		o := stack.Options{Specs: demoSpecs(), PXE: stack.PXEMachines(1), Speed: demoSpeed, WithIdentity: true, WithPayments: true, Progress: out}
		if len(logs) > 0 {
			o.Log = io.MultiWriter(logs...)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 20*time.Minute) // a first build included
		defer cancel()
		return demo(ctx, o, out, search)
	}
	return cmd
}

func demoSpecs() []simhw.Spec {
	vendors := []string{"Dell", "Supermicro", "HPE", "NVIDIA", "Lenovo", "Dell", "Supermicro"}
	var out []simhw.Spec
	for i := range demoMachines {
		out = append(out, simhw.GPUServer(vendors[i], i+1))
	}
	return out
}

func hostname(m *simhw.Machine) string { return "gpu-" + m.Spec().ID }

func demo(ctx context.Context, o stack.Options, out io.Writer, search *secretSearch) error {
	fmt.Fprintln(out, "Slipway demo: bare servers become active GPU nodes, and leave service clean. Everything outside Slipway is simulated; the protocols are real.")
	hooks, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer hooks.close()
	o.Receiver = hooks.local
	s, err := stack.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := search.begin(ctx, s); err != nil {
		return err
	}
	op, err := prepare(ctx, s)
	if err != nil {
		return err
	}
	op.hooks = hooks
	op.addresses(out)
	op.signIns(out)
	pxe, err := op.bootFromNetwork(ctx, out)
	if err != nil {
		return err
	}
	if err := op.takeOnCustomers(ctx, out); err != nil {
		return err
	}
	began := time.Now()
	jobs, err := op.onboardAll(ctx, out)
	if err != nil {
		return err
	}
	if err := op.watch(ctx, out, jobs, began); err != nil {
		return err
	}
	if err := op.summary(ctx, out, jobs); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d nodes are active, %s after the first request.\n", len(jobs), time.Since(began).Round(time.Second))
	if err := op.inService(ctx, out, pxe); err != nil {
		return err
	}
	if err := search.betweenActs(ctx, op, out, jobs[demoSingles].host); err != nil {
		return err
	}
	if err := op.automate(ctx, out); err != nil {
		return err
	}
	if err := op.rebootNode(ctx, out, jobs[0]); err != nil {
		return err
	}
	if err := op.rentInstance(ctx, out); err != nil {
		return err
	}
	second, err := op.lendNode(ctx, out, jobs[lentNode])
	if err != nil {
		return err
	}
	if err := op.runLow(ctx, out); err != nil {
		return err
	}
	if err := op.leave(ctx, out, jobs, pxe); err != nil {
		return err
	}
	if err := op.runOut(ctx, out, second); err != nil {
		return err
	}
	op.addresses(out)
	if err := search.run(ctx, op, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe demo ends here and takes its stack with it. `make up` keeps one running at fixed addresses.")
	return nil
}

// watched is a job on the screen.
type watched struct {
	ID, host, vendor, seen string
	node                   string // its id, once the job is known to have one
	ended                  bool
}

func (o *operator) bmc(m *simhw.Machine) client.BMCRequest {
	return client.BMCRequest{Address: m.Spec().BMCAddress, CredentialRef: stack.BMCSecret(m.Spec().ID)}
}

// onboardAll asks for four single onboardings and one batch of three.
func (o *operator) onboardAll(ctx context.Context, out io.Writer) ([]*watched, error) {
	lent, err := o.skus().ensure(ctx, lentSKU, o.stack.SKUSpec())
	if err != nil {
		return nil, err
	}
	machines := o.stack.Sims.Fleet.All()
	var jobs []*watched
	for i, m := range machines[:demoSingles] {
		sku := o.sku
		if i == lentNode {
			sku = lent
		}
		req := client.OnboardingRequest{SiteID: o.site, ProfileID: o.prof, SkuID: sku, Hostname: hostname(m), Bmc: o.bmc(m)}
		j, err := client.Value(o.api.CreateOnboarding(ctx, req))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "\nPOST /api/v1/admin/onboardings  %s (%s)  ->  202 %s", hostname(m), m.Spec().Vendor, j.ID)
		jobs = append(jobs, &watched{ID: j.ID, host: hostname(m), vendor: m.Spec().Vendor})
	}
	var items []client.BatchItemRequest
	for _, m := range machines[demoSingles:] {
		items = append(items, client.BatchItemRequest{Hostname: hostname(m), Bmc: o.bmc(m)})
	}
	req := client.BatchRequest{Name: new("rack 1"), SiteID: o.site, ProfileID: o.prof, SkuID: &o.sku, Items: items}
	batch, err := client.Value(o.api.CreateOnboardingBatch(ctx, req))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\nPOST /api/v1/admin/onboarding-batches  %d servers  ->  202 %s\n\n", len(items), batch.ID)
	for i, it := range batch.Items {
		if it.JobID == "" {
			return nil, fmt.Errorf("%s was rejected: %s", it.Hostname, it.Error)
		}
		jobs = append(jobs, &watched{ID: it.JobID, host: it.Hostname, vendor: machines[demoSingles+i].Spec().Vendor})
	}
	return jobs, nil
}

// watch prints each stage as it is reached, until every job has ended.
func (o *operator) watch(ctx context.Context, out io.Writer, jobs []*watched, began time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	for open := len(jobs); open > 0; {
		for _, j := range jobs {
			if j.ended {
				continue
			}
			v, err := client.Value(o.api.GetJob(ctx, j.ID))
			if err != nil {
				return err
			}
			status := lifecycle.JobStatus(v.Status)
			j.node = v.NodeID
			if line := fmt.Sprintf("%-9s %s", v.Status, v.Stage); line != j.seen {
				j.seen = line
				fmt.Fprintf(out, "%6.1fs  %-16s %-11s %s %3d %%  %s\n", time.Since(began).Seconds(), j.host, j.vendor, bar(int(v.ProgressPercent)), v.ProgressPercent, line)
			}
			switch {
			case status.Parked():
				return fmt.Errorf("%s stopped at %s: %s: %s; %s", j.host, v.Stage, v.FailureClass, v.Message, v.NextStep)
			case lifecycle.Job.Terminal(status):
				j.ended = true
				open--
			}
		}
		if poll.Sleep(ctx, 300*time.Millisecond) != nil {
			return errors.New("the demo did not end within its five minutes")
		}
	}
	return nil
}

func bar(percent int) string {
	const width = 20
	n := percent * width / 100
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}

// summary shows the result with the command line, as an operator would look.
func (o *operator) summary(ctx context.Context, out io.Writer, jobs []*watched) error {
	first := jobs[0]
	for _, args := range [][]string{
		{"node", "list"}, {"job", "show", first.ID}, {"node", "history", first.host}, {"node", "timeline", first.host},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	for _, j := range jobs {
		list, err := client.Value(o.api.ListNodes(ctx, &client.ListNodesParams{Hostname: &j.host}))
		if err != nil {
			return err
		}
		if len(list.Data) != 1 || list.Data[0].Status != string(lifecycle.NodeActive) {
			return fmt.Errorf("node %s is not active", j.host)
		}
	}
	return nil
}
