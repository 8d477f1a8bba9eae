package cli

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/internal/poll"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

func (a *app) campaigns() slipwayv1connect.CampaignServiceClient {
	return slipwayv1connect.NewCampaignServiceClient(sender{a}, anyServer)
}

func (a *app) campaignCommand() *cobra.Command {
	type reply = func(context.Context, slipwayv1connect.CampaignServiceClient, asProject, string, string) (*connect.Response[slipwayv1.Campaign], error)
	pause := reply(func(ctx context.Context, c slipwayv1connect.CampaignServiceClient, as asProject, id, why string) (*connect.Response[slipwayv1.Campaign], error) {
		return c.PauseCampaign(ctx, request(as, &slipwayv1.PauseCampaignRequest{CampaignId: id, Reason: why}))
	})
	resume := reply(func(ctx context.Context, c slipwayv1connect.CampaignServiceClient, as asProject, id, why string) (*connect.Response[slipwayv1.Campaign], error) {
		return c.ResumeCampaign(ctx, request(as, &slipwayv1.ResumeCampaignRequest{CampaignId: id, Reason: why}))
	})
	cancel := reply(func(ctx context.Context, c slipwayv1connect.CampaignServiceClient, as asProject, id, why string) (*connect.Response[slipwayv1.Campaign], error) {
		return c.CancelCampaign(ctx, request(as, &slipwayv1.CancelCampaignRequest{CampaignId: id, Reason: why}))
	})
	return group("campaign", "The same plan over many machines", a.campaignCreate(), a.campaignList(), a.campaignShow(),
		a.campaignChange("pause CAMPAIGN", "Start no more runs; active ones go on", pause),
		a.campaignChange("resume CAMPAIGN", "Go on with a campaign that is paused or stopped", resume),
		a.campaignChange("cancel CAMPAIGN", "Give machines that wait no run; active runs go on", cancel), a.campaignRetry())
}

// showCampaign prints one campaign with its machines.
func (a *app) showCampaign(c *slipwayv1.Campaign) error {
	return a.print(c, func() error {
		if c.GetCampaignId() == "" {
			fmt.Fprintf(a.Out, "%s with plan %s: %d machines, of which %d would be refused now; selection %s\n", oneLine(c.GetType()), oneLine(c.GetPlanId()), len(c.GetMembers()),
				c.GetCounts().GetSkipped(), oneLine(c.GetSelectionHash()))
		} else {
			fmt.Fprintf(a.Out, "%s  %s with plan %s  %s  %s\n", oneLine(c.GetCampaignId()), oneLine(c.GetType()), oneLine(c.GetPlanId()), c.GetState(), oneLine(c.GetMessage()))
		}
		t := a.table("MACHINE", "STATE", "RUN", "MESSAGE")
		for _, m := range c.GetMembers() {
			t.row(m.GetMachineId(), m.GetState(), m.GetRunId(), oneLine(m.GetMessage()))
		}
		return t.flush()
	})
}

// answered prints the campaign of an answer, or watches it until nothing happens in it by itself.
func (a *app) answered(ctx context.Context, as asProject, out *connect.Response[slipwayv1.Campaign], err error, watch bool) error {
	if err != nil {
		return called(err)
	}
	if !watch || out.Msg.GetCampaignId() == "" {
		return a.showCampaign(out.Msg)
	}
	return a.watchCampaign(ctx, as, out.Msg)
}

// watchRunsFlag adds the flag that follows a campaign.
func watchRunsFlag(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVar(watch, "watch", false, "print every change until the end; exits with 6 unless every run succeeds")
}

// campaignPause is the time between two looks at a campaign that is watched.
const campaignPause = time.Second

// watchCampaign prints each change of a campaign until no run is active and none is started by
// itself. It ends in ExitJobFailed unless every run succeeded.
func (a *app) watchCampaign(ctx context.Context, as asProject, c *slipwayv1.Campaign) error {
	last := ""
	for {
		n := c.GetCounts()
		if line := fmt.Sprintf("%s  %d of %d succeeded, %d running, %d waiting, %d failed, %d skipped", c.GetState(), n.GetSucceeded(), len(c.GetMembers()),
			n.GetRunning(), n.GetWaiting(), n.GetFailed(), n.GetSkipped()); line != last && a.output == "table" {
			fmt.Fprintln(a.Out, line)
			last = line
		}
		if c.GetState() != slipwayv1.Campaign_RUNNING && n.GetRunning() == 0 {
			break
		}
		if poll.Sleep(ctx, campaignPause) != nil {
			return nil
		}
		next, err := a.getCampaign(ctx, as, c.GetCampaignId())
		if err != nil {
			return called(err)
		}
		c = next
	}
	if err := a.showCampaign(c); err != nil {
		return err
	}
	if int(c.GetCounts().GetSucceeded()) != len(c.GetMembers()) {
		return fail(ExitJobFailed, "the campaign is %s, and not every run succeeded", c.GetState())
	}
	return nil
}

func (a *app) getCampaign(ctx context.Context, as asProject, id string) (*slipwayv1.Campaign, error) {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	out, err := a.campaigns().GetCampaign(ctx, request(as, &slipwayv1.GetCampaignRequest{CampaignId: id}))
	if err != nil {
		return nil, err
	}
	return out.Msg, nil
}

func (a *app) campaignCreate() *cobra.Command {
	var in slipwayv1.CreateCampaignRequest
	var as asProject
	var watch bool
	cmd := &cobra.Command{
		Use: "create TYPE", Short: "Run a plan on every machine of a filter: REPAVE, RMA, REBOOT, UPGRADE or NET_RECONFIG", Args: cobra.ExactArgs(1),
		Long: "The machines are selected once. One run goes first; when it has succeeded, --max-parallel run at a time.\n" +
			"slipway campaign create UPGRADE --filter 'labels.env=prod AND phase=READY' --max-parallel 4 --dry-run",
	}
	f := cmd.Flags()
	f.StringVar(&in.Filter, "filter", "", "which machines, as in slipway machine list; required")
	f.StringVar(&in.PlanId, "plan", "", "the plan, by name or id (default: that of the type)")
	f.StringVar(&in.DisplayName, "name", "", "a name to show")
	f.Int32Var(&in.MaxParallel, "max-parallel", 1, "how many runs are active at a time, at most 100")
	f.Int32Var(&in.StopAfterFailures, "stop-after", 1, "how many runs may fail before no more are started")
	f.BoolVar(&in.SkipCanary, "skip-canary", false, "do not wait for the first run to succeed")
	f.BoolVar(&in.AcceptRisk, "accept-risk", false, "interrupt what runs on machines that are in their cluster and not drained; for operators")
	f.BoolVar(&in.ValidateOnly, "dry-run", false, "show the machines and what would be refused now, and start nothing")
	f.StringVar(&in.SelectionHash, "selection", "", "start only if the selection is that of a dry run")
	f.StringVar(&in.RequestId, "request-id", "", "makes the request safe to repeat (default: a new one)")
	watchRunsFlag(cmd, &watch)
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		in.Type = args[0]
		if err := a.resolvePlan(cmd.Context(), as, &in.PlanId); err != nil {
			return err
		}
		if in.RequestId == "" {
			in.RequestId = uuid.NewString()
		}
		ctx, cancel := a.bounded(cmd.Context())
		out, err := a.campaigns().CreateCampaign(ctx, request(as, &in))
		cancel()
		return a.answered(cmd.Context(), as, out, err, watch)
	})
	return cmd
}

func (a *app) campaignList() *cobra.Command {
	var in slipwayv1.ListCampaignsRequest
	var as asProject
	cmd := &cobra.Command{Use: "list", Short: "List campaigns, the newest first", Args: cobra.NoArgs}
	cmd.Flags().Int32Var(&in.PageSize, "limit", 50, "how many, at most 1000")
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		out, err := a.campaigns().ListCampaigns(ctx, request(as, &in))
		if err != nil {
			return called(err)
		}
		return a.print(out.Msg, func() error {
			t := a.table("CAMPAIGN", "NAME", "TYPE", "STATE", "SUCCEEDED", "RUNNING", "WAITING", "FAILED", "SKIPPED")
			for _, c := range out.Msg.GetCampaigns() {
				n := c.GetCounts()
				t.row(c.GetCampaignId(), oneLine(c.GetDisplayName()), oneLine(c.GetType()), c.GetState(), n.GetSucceeded(), n.GetRunning(), n.GetWaiting(), n.GetFailed(), n.GetSkipped())
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) campaignShow() *cobra.Command {
	var as asProject
	var watch bool
	cmd := &cobra.Command{Use: "show CAMPAIGN", Short: "Show a campaign with its machines", Args: cobra.ExactArgs(1)}
	watchRunsFlag(cmd, &watch)
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), campaignKind(), lookup{as: as}, args[0])
		if err != nil {
			return err
		}
		c, err := a.getCampaign(cmd.Context(), as, id)
		if err != nil {
			return called(err)
		}
		return a.answered(cmd.Context(), as, connect.NewResponse(c), nil, watch)
	})
	return cmd
}

// campaignChange is a command that changes a campaign.
func (a *app) campaignChange(
	use, short string, do func(ctx context.Context, c slipwayv1connect.CampaignServiceClient, as asProject, id, why string) (*connect.Response[slipwayv1.Campaign], error),
) *cobra.Command {
	var as asProject
	var reason string
	var watch bool
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	watchRunsFlag(cmd, &watch)
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), campaignKind(), lookup{as: as}, args[0])
		if err != nil {
			return err
		}
		ctx, cancel := a.bounded(cmd.Context())
		out, err := do(ctx, a.campaigns(), as, id, reason)
		cancel()
		return a.answered(cmd.Context(), as, out, err, watch)
	})
	return cmd
}

func (a *app) campaignRetry() *cobra.Command {
	var machines []string
	cmd := a.campaignChange("retry CAMPAIGN", "Give machines whose run did not succeed another one",
		func(ctx context.Context, c slipwayv1connect.CampaignServiceClient, as asProject, id, why string) (*connect.Response[slipwayv1.Campaign], error) {
			return c.RetryCampaign(ctx, request(as, &slipwayv1.RetryCampaignRequest{CampaignId: id, MachineIds: machines, Reason: why}))
		})
	cmd.Flags().StringSliceVar(&machines, "machine", nil, "one that is FAILED, CANCELED or SKIPPED; may be repeated (default: all of them)")
	return cmd
}
