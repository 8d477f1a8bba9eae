package grpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// machineService serves the calls of machines.
type machineService struct{ *server }

// RegisterMachine implements slipwayv1connect.MachineServiceHandler.
func (s machineService) RegisterMachine(ctx context.Context, r *connect.Request[slipwayv1.RegisterMachineRequest]) (*connect.Response[slipwayv1.Machine], error) {
	return s.write(ctx, r.Msg.GetMachine(), machines.Register)
}

// UpdateMachine implements slipwayv1connect.MachineServiceHandler.
func (s machineService) UpdateMachine(ctx context.Context, r *connect.Request[slipwayv1.UpdateMachineRequest]) (*connect.Response[slipwayv1.Machine], error) {
	if id := r.Msg.GetMachine().GetMachineId(); !spec.ValidMachineID(id) {
		return nil, invalid("machine.machine_id", "must name the machine")
	}
	return s.write(ctx, r.Msg.GetMachine(), machines.Update)
}

const maxProjectID = 100

// write checks the machine of a request, and writes it with the given function.
func (s machineService) write(
	ctx context.Context, in *slipwayv1.Machine, do func(context.Context, *db.Tx, machines.Registration, db.Actor) (machinesdb.Machine, error),
) (*connect.Response[slipwayv1.Machine], error) {
	if in == nil {
		return nil, invalid("machine", "is missing")
	}
	stated, err := machineSpecFromProto(in)
	if err != nil {
		return nil, err
	}
	if len(in.GetCustomerId()) > maxProjectID {
		return nil, invalid("machine.customer_id", "must be the id of a project")
	}
	reg := machines.Registration{ID: in.GetMachineId(), ProjectID: in.GetCustomerId(), Labels: in.GetLabels(), Spec: stated}
	if in.GetStatus().GetPhase() == slipwayv1.MachineStatus_FACTORY_READY {
		reg.Phase = lifecycle.MachineFactoryReady
	}
	return s.change(ctx, func(tx *db.Tx) (machinesdb.Machine, error) { return do(ctx, tx, reg, op.ActorOf(ctx)) })
}

// change runs fn in a transaction. It returns the machine as an answer.
func (s machineService) change(ctx context.Context, fn func(*db.Tx) (machinesdb.Machine, error)) (*connect.Response[slipwayv1.Machine], error) {
	var shown machinesdb.Shown
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		m, err := fn(tx)
		if err == nil {
			shown, err = machinesdb.Show(ctx, tx, m.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(machineToProto(shown)), nil
}

// GetMachine implements slipwayv1connect.MachineServiceHandler.
func (s machineService) GetMachine(ctx context.Context, r *connect.Request[slipwayv1.GetMachineRequest]) (*connect.Response[slipwayv1.Machine], error) {
	m, err := s.find(ctx, r.Msg.GetMachineId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(machineToProto(m)), nil
}

// find returns a machine. It returns "not found" if the caller may not see the machine.
func (s *server) find(ctx context.Context, id string) (m machinesdb.Shown, err error) {
	if !spec.ValidMachineID(id) {
		return m, db.NotFound("machine " + id)
	}
	err = s.read(ctx, func(c machinesdb.Conn) (err error) {
		m, err = machinesdb.Show(ctx, c, id)
		return err
	})
	return m, err
}

// ListMachines implements slipwayv1connect.MachineServiceHandler.
func (s machineService) ListMachines(ctx context.Context, r *connect.Request[slipwayv1.ListMachinesRequest]) (*connect.Response[slipwayv1.ListMachinesResponse], error) {
	filter, err := listfilter.Parse(r.Msg.GetFilter(), listfilter.MachineFields())
	if err != nil {
		return nil, err
	}
	project := callerOf(ctx).Project
	list := listOf("machines", project, filter)
	after, limit, err := readPage(r.Msg.GetPageSize(), r.Msg.GetPageToken(), list)
	if err != nil {
		return nil, err
	}
	var rows []machinesdb.Shown
	err = s.read(ctx, func(c machinesdb.Conn) (err error) {
		rows, err = machinesdb.List(ctx, c, machinesdb.Page{Project: project, Filter: filter, After: after, Limit: limit + 1})
		return err
	})
	if err != nil {
		return nil, err
	}
	rows, next, err := writePage(rows, limit, list, func(m machinesdb.Shown) string { return m.ID })
	if err != nil {
		return nil, err
	}
	out := &slipwayv1.ListMachinesResponse{NextPageToken: next}
	for _, m := range rows {
		out.Machines = append(out.Machines, machineToProto(m))
	}
	return connect.NewResponse(out), nil
}

// SetMachinePhase implements slipwayv1connect.MachineServiceHandler.
func (s machineService) SetMachinePhase(ctx context.Context, r *connect.Request[slipwayv1.SetMachinePhaseRequest]) (*connect.Response[slipwayv1.Machine], error) {
	phase, err := machinePhaseFromProto(r.Msg.GetPhase())
	if err != nil {
		return nil, err
	}
	if _, err := s.find(ctx, r.Msg.GetMachineId()); err != nil {
		return nil, err
	}
	return s.change(ctx, func(tx *db.Tx) (machinesdb.Machine, error) {
		return machines.SetPhase(ctx, tx, r.Msg.GetMachineId(), phase, r.Msg.GetReason(), op.ActorOf(ctx))
	})
}

// SetMachineAccess implements slipwayv1connect.MachineServiceHandler.
func (s machineService) SetMachineAccess(ctx context.Context, r *connect.Request[slipwayv1.SetMachineAccessRequest]) (*connect.Response[slipwayv1.Machine], error) {
	in := machines.Access{NodeID: r.Msg.GetNodeId(), SiteID: r.Msg.GetSiteId(), BMCCredentialRef: r.Msg.GetBmcCredentialRef()}
	if len(in.NodeID) > maxProjectID || len(in.SiteID) > maxProjectID {
		return nil, invalid("node_id", "and site_id must be ids")
	}
	var err error
	if in.HostKey, err = spec.NormalHostKey(r.Msg.GetSshHostKey()); err != nil {
		return nil, err
	}
	if _, err := s.find(ctx, r.Msg.GetMachineId()); err != nil {
		return nil, err
	}
	return s.change(ctx, func(tx *db.Tx) (machinesdb.Machine, error) {
		return machines.SetAccess(ctx, tx, r.Msg.GetMachineId(), in, op.ActorOf(ctx))
	})
}

// machineToProto returns a machine as an answer.
func machineToProto(m machinesdb.Shown) *slipwayv1.Machine {
	conditions := m.Conditions
	if m.RunWaits {
		conditions = conditions.Observe(lifecycle.NeedsInterventionCondition, true, "RunWaitsForOperator", m.UpdatedAt)
	}
	out := &slipwayv1.Machine{
		MachineId: m.ID, Labels: m.Labels, Spec: machineSpecToProto(m.Spec), Status: machineStatusToProto(m.Status, conditions, m.RunID, m.RunPhase),
	}
	if m.ProjectID != nil {
		out.CustomerId = *m.ProjectID
	}
	return out
}
