package grpc

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// planFromProto checks and returns the plan of a request. It refuses unknown fields, because such a
// field may change the meaning of a step.
func planFromProto(in *slipwayv1.Plan) (runplan.Plan, error) {
	if hasUnknown(in.ProtoReflect()) {
		return runplan.Plan{}, &spec.InvalidError{Fields: []spec.Invalid{{Field: "plan", Problem: "has a field that this version does not know; update the server, or leave the field out"}}}
	}
	p := runplan.Plan{ID: in.GetPlanId(), DisplayName: in.GetDisplayName(), StartableBy: in.GetStartableBy()}
	for _, s := range in.GetSteps() {
		p.Steps = append(p.Steps, stepFromProto(s))
	}
	return p, p.Check()
}

func stepFromProto(in *slipwayv1.Step) runplan.Step {
	s := runplan.Step{Name: in.GetName(), TimeoutSeconds: toInt(in.TimeoutSeconds), MaxRetries: toInt(in.MaxRetries)}
	switch k := in.GetKind().(type) {
	case *slipwayv1.Step_Ssh:
		s.SSH = &runplan.SSHCommand{Command: k.Ssh.GetCommand(), Idempotent: k.Ssh.GetIdempotent()}
	case *slipwayv1.Step_Reboot:
		s.Reboot = &runplan.Reboot{Mode: k.Reboot.GetMode()}
	case *slipwayv1.Step_Netboot:
		s.Netboot = &runplan.SetNetboot{Mode: k.Netboot.GetMode()}
	case *slipwayv1.Step_Repave:
		s.Repave = &runplan.RepaveImage{Image: k.Repave.GetImage()}
	case *slipwayv1.Step_Join:
		s.Join = &runplan.KubeadmJoin{ClusterRef: k.Join.GetClusterRef()}
	case *slipwayv1.Step_Verify:
		s.Verify = &runplan.VerifyInCluster{ClusterRef: k.Verify.GetClusterRef(), KubeletVersion: k.Verify.GetKubeletVersion()}
	case *slipwayv1.Step_Net:
		s.Net = &runplan.NetReconfig{Netplan: k.Net.GetNetplan(), ConfirmSeconds: int(k.Net.GetConfirmSeconds()), SSHEndpoint: k.Net.GetSshEndpoint()}
	case *slipwayv1.Step_Rma:
		s.RMA = &runplan.RMAAction{Ticket: k.Rma.GetTicket()}
	}
	return s
}

// planToProto returns a plan as an answer.
func planToProto(p runplan.Plan) *slipwayv1.Plan {
	out := &slipwayv1.Plan{PlanId: p.ID, DisplayName: p.DisplayName, StartableBy: p.StartableBy}
	for _, s := range p.Steps {
		out.Steps = append(out.Steps, stepToProto(s))
	}
	return out
}

func stepToProto(s runplan.Step) *slipwayv1.Step {
	out := &slipwayv1.Step{Name: s.Name, TimeoutSeconds: toInt32(s.TimeoutSeconds), MaxRetries: toInt32(s.MaxRetries)}
	switch s.Kind() {
	case runplan.KindSSH:
		out.Kind = &slipwayv1.Step_Ssh{Ssh: &slipwayv1.SshCommand{Command: s.SSH.Command, Idempotent: s.SSH.Idempotent}}
	case runplan.KindReboot:
		out.Kind = &slipwayv1.Step_Reboot{Reboot: &slipwayv1.Reboot{Mode: s.Reboot.Mode}}
	case runplan.KindNetboot:
		out.Kind = &slipwayv1.Step_Netboot{Netboot: &slipwayv1.SetNetboot{Mode: s.Netboot.Mode}}
	case runplan.KindRepave:
		out.Kind = &slipwayv1.Step_Repave{Repave: &slipwayv1.RepaveImage{Image: s.Repave.Image}}
	case runplan.KindJoin:
		out.Kind = &slipwayv1.Step_Join{Join: &slipwayv1.KubeadmJoin{ClusterRef: s.Join.ClusterRef}}
	case runplan.KindVerify:
		out.Kind = &slipwayv1.Step_Verify{Verify: &slipwayv1.VerifyInCluster{ClusterRef: s.Verify.ClusterRef, KubeletVersion: s.Verify.KubeletVersion}}
	case runplan.KindNet:
		out.Kind = &slipwayv1.Step_Net{Net: &slipwayv1.NetReconfig{Netplan: s.Net.Netplan, ConfirmSeconds: int32(s.Net.ConfirmSeconds), SshEndpoint: s.Net.SSHEndpoint}}
	case runplan.KindRMA:
		out.Kind = &slipwayv1.Step_Rma{Rma: &slipwayv1.RmaAction{Ticket: s.RMA.Ticket}}
	}
	return out
}

// machineSpecFromProto checks and normalizes the spec of a machine in a request.
func machineSpecFromProto(in *slipwayv1.Machine) (spec.MachineSpec, error) {
	s := in.GetSpec()
	return spec.NormalMachine(spec.MachineSpec{
		SSHEndpoint: s.GetSshEndpoint(), BMCEndpoint: s.GetBmcEndpoint(), TargetClusterRef: s.GetTargetClusterRef(),
		MACAddresses: s.GetMacAddresses(), Provider: s.GetProvider(), Location: s.GetLocation(), Rack: s.GetRack(), Serial: s.GetSerial(), Netplan: s.GetNetplan(),
	}, in.GetLabels())
}

// machineSpecToProto returns the stored spec of a machine as an answer.
func machineSpecToProto(s spec.MachineSpec) *slipwayv1.MachineSpec {
	return &slipwayv1.MachineSpec{
		SshEndpoint: s.SSHEndpoint, BmcEndpoint: s.BMCEndpoint, TargetClusterRef: s.TargetClusterRef, MacAddresses: s.MACAddresses,
		Provider: s.Provider, Location: s.Location, Rack: s.Rack, Serial: s.Serial, Netplan: s.Netplan,
	}
}

// machineStatusToProto returns the state of a machine as an answer. run is the active run. It has
// an empty id and phase if no run is active.
func machineStatusToProto(phase lifecycle.MachinePhase, c lifecycle.Conditions, runID string, run lifecycle.RunPhase) *slipwayv1.MachineStatus {
	out := &slipwayv1.MachineStatus{
		Phase: machinePhaseToProto(phase), ActiveRunId: runID,
		EffectiveState: machinePhaseToProto(lifecycle.EffectiveState(phase, run, c)),
	}
	for _, t := range lifecycle.ConditionTypes() {
		if found, ok := c.Find(t); ok {
			out.Conditions = append(out.Conditions, &slipwayv1.Condition{
				Type: string(t), Status: found.Status, Reason: found.Reason, LastTransition: timestamppb.New(found.LastTransition),
			})
		}
	}
	for _, b := range lifecycle.Banners(c) {
		out.Banners = append(out.Banners, string(b))
	}
	return out
}

// The enumerations have the same spelling in lifecycle and in the proto files. A test compares
// them.
func machinePhaseToProto(p lifecycle.MachinePhase) slipwayv1.MachineStatus_Phase {
	return slipwayv1.MachineStatus_Phase(slipwayv1.MachineStatus_Phase_value[string(p)])
}

func runPhaseToProto(p lifecycle.RunPhase) slipwayv1.Run_Phase {
	return slipwayv1.Run_Phase(slipwayv1.Run_Phase_value[string(p)])
}

func stepStateToProto(s lifecycle.StepState) slipwayv1.StepStatus_State {
	return slipwayv1.StepStatus_State(slipwayv1.StepStatus_State_value[string(s)])
}

// machinePhaseFromProto returns the phase in a request.
func machinePhaseFromProto(p slipwayv1.MachineStatus_Phase) (lifecycle.MachinePhase, error) {
	phase := lifecycle.MachinePhase(p.String())
	if !lifecycle.MachinePhases.Has(phase) {
		return "", &spec.InvalidError{Fields: []spec.Invalid{{Field: "phase", Problem: fmt.Sprintf("%d is no phase of a machine", p)}}}
	}
	return phase, nil
}

// hasUnknown reports whether a message, or a message in one of its fields, has unknown fields.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				found = found || hasUnknown(v.List().Get(i).Message())
			}
		default:
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}

func toInt(v *int32) *int {
	if v == nil {
		return nil
	}
	n := int(*v)
	return &n
}

func toInt32(v *int) *int32 {
	if v == nil {
		return nil
	}
	n := int32(*v)
	return &n
}
