package grpc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// runService serves the calls of runs.
type runService struct{ *server }

// StartRun implements slipwayv1connect.RunServiceHandler.
func (s runService) StartRun(ctx context.Context, r *connect.Request[slipwayv1.StartRunRequest]) (*connect.Response[slipwayv1.Run], error) {
	in, project := r.Msg, callerOf(ctx).Project
	if in.GetAcceptRisk() && project != "" {
		return nil, invalid("accept_risk", "is for operators of the platform")
	}
	if _, err := s.find(ctx, in.GetMachineId()); err != nil {
		return nil, err
	}
	if in.GetPlanId() != "" && !spec.ValidMachineID(in.GetPlanId()) {
		return nil, db.NotFound("plan " + in.GetPlanId())
	}
	var run machinesdb.Run
	err := s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		if err := checkStepUp(ctx, tx, in); err != nil {
			return err
		}
		run, err = machines.StartRun(ctx, tx, machines.Start{
			RequestID: in.GetRequestId(), MachineID: in.GetMachineId(), Type: lifecycle.RunType(in.GetType()), PlanID: in.GetPlanId(),
			AcceptRisk: in.GetAcceptRisk(), Project: project, Offers: s.cfg.Offers, LogsIn: s.cfg.LogsIn, CustomersTakeNodes: s.cfg.CustomersTakeNodes,
		}, op.ActorOf(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(runToProto(machinesdb.ViewOf(run))), nil
}

const maxRunID = 128

// findRun returns a run. It returns "not found" if the caller may not see the run.
func (s *server) findRun(ctx context.Context, id string) (run machinesdb.Run, err error) {
	if id == "" || len(id) > maxRunID || !spec.ValidMachineID(id) {
		return run, db.NotFound("run " + id)
	}
	err = s.read(ctx, func(c machinesdb.Conn) (err error) {
		run, err = machinesdb.GetRun(ctx, c, id)
		return err
	})
	return run, err
}

// listRuns returns the runs that the caller may see, newest first.
func (s *server) listRuns(ctx context.Context, p machinesdb.Page, active bool) (runs []machinesdb.Run, err error) {
	err = s.read(ctx, func(c machinesdb.Conn) (err error) {
		runs, err = machinesdb.ListRuns(ctx, c, p, active)
		return err
	})
	return runs, err
}

// GetRun implements slipwayv1connect.RunServiceHandler.
func (s runService) GetRun(ctx context.Context, r *connect.Request[slipwayv1.GetRunRequest]) (*connect.Response[slipwayv1.Run], error) {
	run, err := s.findRun(ctx, r.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(runToProto(machinesdb.ViewOf(run))), nil
}

// ListRuns implements slipwayv1connect.RunServiceHandler.
func (s runService) ListRuns(ctx context.Context, r *connect.Request[slipwayv1.ListRunsRequest]) (*connect.Response[slipwayv1.ListRunsResponse], error) {
	filter, err := listfilter.Parse(r.Msg.GetFilter(), listfilter.RunFields())
	if err != nil {
		return nil, err
	}
	project := callerOf(ctx).Project
	read := func(after string, limit int) ([]*slipwayv1.Run, bool, error) {
		rows, err := s.listRuns(ctx, machinesdb.Page{Project: project, Filter: filter, After: after, Limit: limit + 1}, false)
		more := len(rows) > limit
		out := make([]*slipwayv1.Run, 0, len(rows))
		for _, run := range rows[:min(limit, len(rows))] {
			out = append(out, runToProto(machinesdb.ViewOf(run)))
		}
		return out, more, err
	}
	out := &slipwayv1.ListRunsResponse{}
	out.Runs, out.NextPageToken, err = listPageOrAll(r.Msg, listOf("runs", project, filter), read, (*slipwayv1.Run).GetRunId)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// CancelRun implements slipwayv1connect.RunServiceHandler. The job answers when it has taken the
// cancellation, which is audited in the transaction that stores it. A run that has ended meanwhile
// is no error.
func (s runService) CancelRun(ctx context.Context, r *connect.Request[slipwayv1.CancelRunRequest]) (*connect.Response[slipwayv1.Run], error) {
	run, err := s.findRun(ctx, r.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	if !lifecycle.Run.Terminal(run.Status) {
		asked := s.cfg.AskJob(ctx, run.JobID, lifecycle.ActionCancel, cmp.Or(op.ActorOf(ctx).Comment, "the run was cancelled"))
		if run, err = s.findRun(ctx, run.ID); err != nil {
			return nil, err
		}
		var refused *lifecycle.ActionRefusedError
		if asked != nil && (!errors.As(asked, &refused) || !lifecycle.Run.Terminal(run.Status)) {
			return nil, asked
		}
	}
	return connect.NewResponse(runToProto(machinesdb.ViewOf(run))), nil
}

// RetryRun implements slipwayv1connect.RunServiceHandler.
func (s runService) RetryRun(ctx context.Context, r *connect.Request[slipwayv1.RetryRunRequest]) (*connect.Response[slipwayv1.Run], error) {
	failed, err := s.findRun(ctx, r.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	var run machinesdb.Run
	err = s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		run, err = machines.RetryRun(ctx, tx, machines.Retry{
			RunID: failed.ID, RequestID: r.Msg.GetRequestId(), Action: lifecycle.Action(r.Msg.GetAction()), AcceptRisk: r.Msg.GetAcceptRisk(),
			Reason: r.Msg.GetReason(), Offers: s.cfg.Offers, LogsIn: s.cfg.LogsIn,
		}, op.ActorOf(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(runToProto(machinesdb.ViewOf(run))), nil
}

// runToProto returns a run as an answer.
func runToProto(v machinesdb.View) *slipwayv1.Run {
	out := &slipwayv1.Run{
		RunId: v.ID, MachineId: v.MachineID, RequestId: v.RequestID, Type: string(v.Type), PlanId: v.PlanID, Phase: runPhaseToProto(v.Phase),
		CurrentStep: v.Current, CreatedAt: timestamppb.New(v.CreatedAt), StartedAt: timeToProto(v.StartedAt), FinishedAt: timeToProto(v.FinishedAt), RetryOf: v.RetryOf,
	}
	for _, row := range v.Steps {
		out.Steps = append(out.Steps, &slipwayv1.StepStatus{
			Name: row.Name, State: stepStateToProto(lifecycle.StepStateOf(row.State)), RetryCount: int32(lifecycle.RetryCount(row)), //nolint:gosec // small
			StartedAt: timeToProto(row.StartedAt), FinishedAt: timeToProto(row.FinishedAt), Message: row.Message, Undone: row.State == lifecycle.StageUndone,
		})
	}
	return out
}

func timeToProto(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
