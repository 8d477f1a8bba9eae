package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/internal/poll"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// planCommands are the commands of plans of runs. Those of jobs are plans of another kind.
func (a *app) planCommands() *cobra.Command {
	return group("plan", "Plans of runs on machines", a.planList(), a.planGet(), a.planCreate())
}

// planPage is how many plans one call lists at most.
const planPage = 1000

func (a *app) planList() *cobra.Command {
	var as asProject
	cmd := &cobra.Command{Use: "list", Short: "List the plans that you may start", Args: cobra.NoArgs}
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		all, in := &slipwayv1.ListPlansResponse{}, &slipwayv1.ListPlansRequest{PageSize: planPage}
		for {
			ctx, cancel := a.bounded(cmd.Context())
			out, err := a.plans().ListPlans(ctx, request(as, in))
			cancel()
			if err != nil {
				return called(err)
			}
			all.Plans = append(all.Plans, out.Msg.GetPlans()...)
			if in.PageToken = out.Msg.GetNextPageToken(); in.PageToken == "" {
				break
			}
		}
		return a.print(all, func() error {
			t := a.table("PLAN", "NAME", "STEPS", "STARTABLE BY")
			for _, p := range all.GetPlans() {
				t.row(p.GetPlanId(), p.GetDisplayName(), len(p.GetSteps()), p.GetStartableBy())
			}
			return t.flush()
		})
	})
	return cmd
}

// resolvePlan replaces the plan of a flag by its id; an empty one stays empty.
func (a *app) resolvePlan(ctx context.Context, as asProject, plan *string) (err error) {
	if *plan != "" {
		*plan, err = a.resolve(ctx, planKind(), lookup{as: as}, *plan)
	}
	return err
}

// showRunPlan prints one plan.
func (a *app) showRunPlan(out *connect.Response[slipwayv1.Plan], err error) error {
	if err != nil {
		return called(err)
	}
	return a.print(out.Msg, func() error {
		fmt.Fprintf(a.Out, "%s  %s\n", out.Msg.GetPlanId(), out.Msg.GetDisplayName())
		t := a.table("STEP", "KIND")
		for _, s := range out.Msg.GetSteps() {
			m := s.ProtoReflect()
			t.row(s.GetName(), m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")).Name())
		}
		return t.flush()
	})
}

func (a *app) planGet() *cobra.Command {
	var as asProject
	cmd := &cobra.Command{Use: "get PLAN", Short: "Show a plan", Args: cobra.ExactArgs(1)}
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.resolve(cmd.Context(), planKind(), lookup{as: as}, args[0])
		if err != nil {
			return err
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		return a.showRunPlan(a.plans().GetPlan(ctx, request(as, &slipwayv1.GetPlanRequest{PlanId: id})))
	})
	return cmd
}

func (a *app) planCreate() *cobra.Command {
	var in slipwayv1.CreatePlanRequest
	cmd := &cobra.Command{Use: "create FILE", Short: "Create a plan from a JSON file; a plan never changes", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&in.ValidateOnly, "validate-only", false, "check the plan and store nothing")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		in.Plan = &slipwayv1.Plan{}
		if err := readMessage(args[0], in.GetPlan()); err != nil {
			return err
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		return a.showRunPlan(a.plans().CreatePlan(ctx, connect.NewRequest(&in)))
	})
	return cmd
}

func (a *app) runCommand() *cobra.Command {
	return group("run", "Runs of plans on machines", a.runStart(), a.runList(), a.runGet(), a.runCancel(), a.runRetry(), a.runWatch(), a.runLogs())
}

// showRun prints one run.
func (a *app) showRun(run *slipwayv1.Run) error {
	return a.print(run, func() error {
		fmt.Fprintf(a.Out, "%s  %s of %s  %s  plan %s\n", run.GetRunId(), run.GetType(), run.GetMachineId(), run.GetPhase(), run.GetPlanId())
		if run.GetRetryOf() != "" {
			fmt.Fprintf(a.Out, "in the place of %s\n", run.GetRetryOf())
		}
		t := a.table("STEP", "STATE", "RETRIES", "MESSAGE")
		for _, s := range run.GetSteps() {
			state := s.GetState().String()
			if s.GetUndone() {
				state += ", undone"
			}
			t.row(s.GetName(), state, s.GetRetryCount(), oneLine(s.GetMessage()))
		}
		return t.flush()
	})
}

func (a *app) runStart() *cobra.Command {
	var in slipwayv1.StartRunRequest
	var as asProject
	var follow bool
	cmd := &cobra.Command{
		Use: "start MACHINE TYPE", Short: "Start a run: REPAVE, RMA, REBOOT, UPGRADE or NET_RECONFIG", Args: cobra.ExactArgs(2),
		Long: "A repeated command with the same --request-id shows the run that the first one started.",
	}
	f := cmd.Flags()
	f.StringVar(&in.PlanId, "plan", "", "the plan, by name or id (default: that of the type)")
	f.StringVar(&in.RequestId, "request-id", "", "makes the request safe to repeat (default: a new one)")
	f.BoolVar(&in.AcceptRisk, "accept-risk", false, "interrupt what runs on a machine that is in its cluster and not drained; for operators")
	f.BoolVar(&follow, "follow", false, "print the output until the run has ended; exits with 6 when it fails")
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		in.MachineId, in.Type = args[0], args[1]
		if err := a.resolvePlan(cmd.Context(), as, &in.PlanId); err != nil {
			return err
		}
		if in.RequestId == "" {
			in.RequestId = uuid.NewString()
		}
		ctx, cancel := a.bounded(cmd.Context())
		out, err := a.runs().StartRun(ctx, request(as, &in))
		cancel()
		return a.showStarted(cmd.Context(), as, out, err, follow)
	})
	return cmd
}

// showStarted prints a run that was started, or its output until it has ended.
func (a *app) showStarted(ctx context.Context, as asProject, out *connect.Response[slipwayv1.Run], err error, follow bool) error {
	switch {
	case err != nil:
		return called(err)
	case follow:
		return a.followRun(ctx, as, out.Msg.GetRunId())
	}
	return a.showRun(out.Msg)
}

// followRun prints the output of a run until it has ended, and then the run.
func (a *app) followRun(ctx context.Context, as asProject, id string) error {
	if err := a.copyLogs(ctx, as, id, true); err != nil {
		return err
	}
	bounded, cancel := a.bounded(ctx)
	defer cancel()
	out, err := a.runs().GetRun(bounded, request(as, &slipwayv1.GetRunRequest{RunId: id}))
	if err != nil {
		return called(err)
	}
	if err := a.showRun(out.Msg); err != nil {
		return err
	}
	if phase := out.Msg.GetPhase(); phase != slipwayv1.Run_SUCCEEDED {
		return fail(ExitJobFailed, "the run is %s", phase)
	}
	return nil
}

func (a *app) runGet() *cobra.Command {
	var as asProject
	cmd := &cobra.Command{Use: "get RUN", Short: "Show a run with its steps", Args: cobra.ExactArgs(1)}
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		out, err := a.runs().GetRun(ctx, request(as, &slipwayv1.GetRunRequest{RunId: args[0]}))
		if err != nil {
			return called(err)
		}
		return a.showRun(out.Msg)
	})
	return cmd
}

func (a *app) runCancel() *cobra.Command {
	var as asProject
	cmd := &cobra.Command{Use: "cancel RUN", Short: "Stop a run at its next safe point", Args: cobra.ExactArgs(1)}
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		out, err := a.runs().CancelRun(ctx, request(as, &slipwayv1.CancelRunRequest{RunId: args[0]}))
		if err != nil {
			return called(err)
		}
		return a.showRun(out.Msg)
	})
	return cmd
}

func (a *app) runRetry() *cobra.Command {
	var in slipwayv1.RetryRunRequest
	var follow bool
	cmd := &cobra.Command{
		Use: "retry RUN", Short: "Start a run in the place of one that failed", Args: cobra.ExactArgs(1),
		Long: "The new run carries out the steps from the first one that has not succeeded, or all of them with --action rerun.",
	}
	f := cmd.Flags()
	f.StringVar(&in.Action, "action", "retry_stage", "retry_stage or resume: from the step that failed; rerun or restart_clean: all steps")
	f.StringVar(&in.Reason, "reason", "", "why, for the audit log")
	f.StringVar(&in.RequestId, "request-id", "", "makes the request safe to repeat (default: a new one)")
	f.BoolVar(&in.AcceptRisk, "accept-risk", false, "interrupt what runs on a machine that is in its cluster and not drained")
	f.BoolVar(&follow, "follow", false, "print the output until the run has ended; exits with 6 when it fails")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		in.RunId = args[0]
		if in.RequestId == "" {
			in.RequestId = uuid.NewString()
		}
		ctx, cancel := a.bounded(cmd.Context())
		out, err := a.runs().RetryRun(ctx, connect.NewRequest(&in))
		cancel()
		return a.showStarted(cmd.Context(), asProject{}, out, err, follow)
	})
	return cmd
}

func (a *app) runList() *cobra.Command {
	var in slipwayv1.ListRunsRequest
	var as asProject
	cmd := &cobra.Command{Use: "list", Short: "List runs, the newest first", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&in.Filter, "filter", "", "which runs, such as 'machine_id=m-1 AND phase=FAILED'")
	cmd.Flags().Int32Var(&in.PageSize, "limit", 50, "how many, at most 1000")
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		out, err := a.runs().ListRuns(ctx, request(as, &in))
		if err != nil {
			return called(err)
		}
		return a.print(out.Msg, func() error {
			t := a.table("RUN", "MACHINE", "TYPE", "PHASE", "STEP")
			for _, r := range out.Msg.GetRuns() {
				t.row(r.GetRunId(), r.GetMachineId(), r.GetType(), r.GetPhase(), r.GetCurrentStep())
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) runWatch() *cobra.Command {
	var in slipwayv1.WatchRunsRequest
	var as asProject
	cmd := &cobra.Command{Use: "watch", Short: "Print every change of runs, until Ctrl-C", Args: cobra.NoArgs}
	in.Heartbeats = true
	cmd.Flags().StringVar(&in.Filter, "filter", "", "which runs, such as 'machine_id=m-1'")
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		return a.reopened(cmd.Context(), func(ctx context.Context, heard func()) (bool, error) {
			s, err := a.runs().WatchRuns(ctx, request(as, &in))
			if err != nil {
				return false, err
			}
			defer func() { _ = s.Close() }()
			for s.Receive() {
				if cursor := s.Msg().GetCursor(); cursor > 0 { // the runs that are active at the beginning have none
					in.ResumeAfter = cursor
				}
				heard()
				if r := s.Msg().GetSnapshot(); r != nil {
					fmt.Fprintf(a.Out, "%s  %s  %s  %s\n", r.GetRunId(), r.GetMachineId(), r.GetPhase(), oneLine(s.Msg().GetMessage()))
				}
			}
			return s.Err() == nil, s.Err()
		})
	})
	return cmd
}

func (a *app) runLogs() *cobra.Command {
	var as asProject
	var follow bool
	cmd := &cobra.Command{Use: "logs RUN", Short: "Print the output of the steps of a run", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&follow, "follow", false, "wait for what comes, until the run has ended")
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error { return a.copyLogs(cmd.Context(), as, args[0], follow) })
	return cmd
}

// logsPause is how long output that is there may take to come, where nobody follows it.
const logsPause = 2 * time.Second

// copyLogs prints the output of a run. A stream that breaks is opened again after the last chunk.
func (a *app) copyLogs(ctx context.Context, as asProject, id string, follow bool) error {
	in := &slipwayv1.StreamRunLogsRequest{RunId: id}
	return a.reopened(ctx, func(ctx context.Context, heard func()) (bool, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		if !follow {
			idle := time.AfterFunc(logsPause, stop)
			defer idle.Stop()
			return a.copyChunks(ctx, as, in, func() { heard(); idle.Reset(logsPause) })
		}
		return a.copyChunks(ctx, as, in, heard)
	})
}

// copyChunks prints chunks until the stream ends, and calls read after each. A stream that ctx has
// ended is over.
func (a *app) copyChunks(ctx context.Context, as asProject, in *slipwayv1.StreamRunLogsRequest, read func()) (over bool, err error) {
	s, err := a.runs().StreamRunLogs(ctx, request(as, in))
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Close() }()
	for s.Receive() {
		c := s.Msg()
		in.ResumeAfter = c.GetSeq()
		to := io.Writer(a.Out)
		if c.GetStream() == "stderr" {
			to = a.Err
		}
		if _, err := to.Write(c.GetData()); err != nil {
			return false, err
		}
		read()
	}
	return s.Err() == nil || ctx.Err() != nil, s.Err()
}

// reopened opens a stream again while it breaks because the server is away, or because this side
// read too slowly, but not for longer than patience without a message. read calls heard at each
// message, and reports that the stream is over.
func (a *app) reopened(ctx context.Context, read func(ctx context.Context, heard func()) (over bool, err error)) error {
	broken := time.Time{}
	for {
		over, err := read(ctx, func() { broken = time.Time{} })
		switch code := connect.CodeOf(err); {
		case over, ctx.Err() != nil:
			return nil
		case code != connect.CodeUnavailable && code != connect.CodeAborted && code != connect.CodeUnknown && code != connect.CodeInternal && code != connect.CodeDeadlineExceeded:
			return called(err)
		case broken.IsZero():
			broken = time.Now()
		case time.Since(broken) > patience:
			return called(err)
		}
		if poll.Sleep(ctx, streamPause) != nil {
			return nil
		}
	}
}
