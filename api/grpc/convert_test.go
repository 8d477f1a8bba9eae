package grpc

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// The JSON of a plan and the message of it mean the same, for the specified sample and for every
// default plan: all kinds of steps are in them.
func TestPlan_RoundTrip(t *testing.T) {
	t.Parallel()
	sample, err := os.ReadFile(filepath.Join("..", "..", "proto", "testdata", "plan.json"))
	require.NoError(t, err)
	specified, err := runplan.Parse(sample)
	require.NoError(t, err)
	var message slipwayv1.Plan
	require.NoError(t, protojson.Unmarshal(sample, &message))
	require.True(t, proto.Equal(&message, planToProto(specified)))

	plans, err := runplan.Defaults()
	require.NoError(t, err)
	kinds := map[runplan.Kind]bool{}
	for _, p := range append(mapValues(plans), specified) {
		got, err := planFromProto(planToProto(p))
		require.NoError(t, err)
		require.Equal(t, p, got)
		for _, s := range p.Steps {
			kinds[s.Kind()] = true
		}
	}
	require.Len(t, kinds, len(runplan.Kinds()))
	full := runplan.Plan{ID: "p", Steps: []runplan.Step{
		{Name: "a", Verify: &runplan.VerifyInCluster{ClusterRef: "c", KubeletVersion: "v1.34.1"}},
		{Name: "b", Net: &runplan.NetReconfig{Netplan: "network: {}", ConfirmSeconds: 300}}, {Name: "c", RMA: &runplan.RMAAction{Ticket: "T-1"}},
	}}
	got, err := planFromProto(planToProto(full))
	require.NoError(t, err)
	require.Equal(t, full, got)
}

func mapValues[K comparable, V any](m map[K]V) []V {
	var out []V
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// A client of a later version sends a kind, a parameter or a field of a plan that this one lacks.
func TestPlanFromProto_RefusesUnknownFields(t *testing.T) {
	t.Parallel()
	unknown := protowire.AppendString(protowire.AppendTag(nil, 900, protowire.BytesType), "x")
	good := func() *slipwayv1.Plan {
		return planToProto(runplan.Plan{ID: "p", Steps: []runplan.Step{{Name: "a", Reboot: &runplan.Reboot{Mode: "bmc"}}}})
	}
	_, err := planFromProto(good())
	require.NoError(t, err)
	for name, edit := range map[string]func(*slipwayv1.Plan){
		"of the plan":      func(p *slipwayv1.Plan) { p.ProtoReflect().SetUnknown(unknown) },
		"of a step":        func(p *slipwayv1.Plan) { p.Steps[0].ProtoReflect().SetUnknown(unknown) },
		"of a parameter":   func(p *slipwayv1.Plan) { p.Steps[0].GetReboot().ProtoReflect().SetUnknown(unknown) },
		"no kind at all":   func(p *slipwayv1.Plan) { p.Steps[0].Kind = nil },
		"an empty message": func(p *slipwayv1.Plan) { p.Steps = append(p.Steps, &slipwayv1.Step{}) },
	} {
		p := good()
		edit(p)
		_, err := planFromProto(p)
		var invalid *spec.InvalidError
		require.ErrorAs(t, err, &invalid, name)
	}
}

func TestEnums_EqualLifecycle(t *testing.T) {
	t.Parallel()
	require.Len(t, slipwayv1.MachineStatus_Phase_value, len(lifecycle.MachinePhases.States)+1)
	for _, s := range lifecycle.MachinePhases.States {
		require.NotZero(t, machinePhaseToProto(s.State), s.State)
		back, err := machinePhaseFromProto(machinePhaseToProto(s.State))
		require.NoError(t, err)
		require.Equal(t, s.State, back)
	}
	require.Len(t, slipwayv1.Run_Phase_value, len(lifecycle.Run.States)+1)
	for _, s := range lifecycle.Run.States {
		require.NotZero(t, runPhaseToProto(s.State), s.State)
	}
	require.Len(t, slipwayv1.StepStatus_State_value, len(lifecycle.RunStep.States)+1)
	for _, s := range lifecycle.RunStep.States {
		require.NotZero(t, stepStateToProto(s.State), s.State)
	}
	for _, p := range []slipwayv1.MachineStatus_Phase{0, 99, -1} {
		_, err := machinePhaseFromProto(p)
		require.Error(t, err)
	}
}

func TestMachine_RoundTrip(t *testing.T) {
	t.Parallel()
	sample, err := os.ReadFile(filepath.Join("..", "..", "proto", "testdata", "machine.json"))
	require.NoError(t, err)
	var m slipwayv1.Machine
	require.NoError(t, protojson.Unmarshal(sample, &m))
	s, err := machineSpecFromProto(&m)
	require.NoError(t, err)
	m.Spec.Provider = "dc-1" // from the label
	require.True(t, proto.Equal(m.Spec, machineSpecToProto(s)))

	var c lifecycle.Conditions
	for _, given := range m.Status.Conditions {
		c = c.Observe(lifecycle.ConditionType(given.Type), given.Status, given.Reason, time.Time{})
	}
	status := machineStatusToProto(lifecycle.MachineReady, c, "", "")
	require.Equal(t, m.Status.Phase, status.Phase)
	require.Equal(t, slipwayv1.MachineStatus_READY, status.EffectiveState)
	require.Len(t, status.Conditions, 3)
	require.Empty(t, status.Banners)
	busy := machineStatusToProto(lifecycle.MachineReady, c.Observe(lifecycle.DegradedCondition, true, "DriveFailed", time.Time{}), "run-1", lifecycle.RunPending)
	require.Equal(t, slipwayv1.MachineStatus_PROVISIONING, busy.EffectiveState)
	require.Equal(t, []string{"Degraded"}, busy.Banners)
	require.Equal(t, "run-1", busy.ActiveRunId)

	m.Spec.SshEndpoint = "-oProxyCommand=x"
	_, err = machineSpecFromProto(&m)
	require.Error(t, err)
}
