// Package proto_test tests that the generated messages keep the API as it was specified.
package proto_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

const specified = "testdata/contract/slipway/v1/contract.proto"

var (
	opening = regexp.MustCompile(`^(service|message|enum|oneof) (\w+) {`)
	rpc     = regexp.MustCompile(`^rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\);`)
	field   = regexp.MustCompile(`^(repeated )?(map<string, string>|[\w.]+) (\w+) = (\d+);`)
	value   = regexp.MustCompile(`^(\w+) = (\d+);`)
)

// specifiedLines returns each declaration of the specification with its full name, in the form that
// generatedLines returns.
func specifiedLines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(specified)
	require.NoError(t, err)
	var found, scope []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.Join(slices.DeleteFunc(slices.Clone(scope), func(s string) bool { return s == "" }), ".")
		switch m := opening.FindStringSubmatch(line); {
		case m != nil && strings.HasSuffix(line, "}"):
			found = append(found, m[1]+" "+m[2])
		case m != nil && m[1] == "oneof":
			scope = append(scope, "") // its fields belong to the message
		case m != nil:
			scope = append(scope, m[2])
			found = append(found, m[1]+" "+strings.TrimPrefix(at+"."+m[2], "."))
		case line == "}":
			scope = scope[:len(scope)-1]
		case rpc.MatchString(line):
			m := rpc.FindStringSubmatch(line)
			found = append(found, "rpc "+at+"."+m[1]+" "+m[2]+" "+m[3]+m[4])
		case field.MatchString(line):
			m := field.FindStringSubmatch(line)
			found = append(found, "field "+at+"."+m[3]+" "+m[1]+m[2]+" "+m[4])
		case value.MatchString(line):
			m := value.FindStringSubmatch(line)
			found = append(found, "value "+at+"."+m[1]+" "+m[2])
		}
	}
	require.Empty(t, scope)
	return found
}

// generatedLines returns each declaration of the generated package.
func generatedLines() []string {
	var found []string
	for _, file := range []protoreflect.FileDescriptor{
		slipwayv1.File_slipway_v1_machine_proto, slipwayv1.File_slipway_v1_plan_proto, slipwayv1.File_slipway_v1_run_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			found = append(found, "service "+string(service.Name()))
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				stream := map[bool]string{true: "stream "}[m.IsStreamingServer()]
				found = append(found, "rpc "+relative(m)+" "+string(m.Input().Name())+" "+stream+string(m.Output().Name()))
			}
		}
		found = append(found, messageLines(file.Messages())...)
	}
	return found
}

func messageLines(messages protoreflect.MessageDescriptors) []string {
	var found []string
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		found = append(found, "message "+relative(m))
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			found = append(found, "field "+relative(f)+" "+typeName(f)+" "+number(int32(f.Number())))
		}
		for j := range m.Enums().Len() {
			e := m.Enums().Get(j)
			found = append(found, "enum "+relative(e))
			for k := range e.Values().Len() {
				v := e.Values().Get(k)
				// A value's full name has the parent of its enum.
				found = append(found, "value "+relative(e)+"."+string(v.Name())+" "+number(int32(v.Number())))
			}
		}
		found = append(found, messageLines(m.Messages())...)
	}
	return found
}

func typeName(f protoreflect.FieldDescriptor) string {
	repeated := map[bool]string{true: "repeated "}[f.IsList()]
	switch {
	case f.IsMap():
		return "map<" + f.MapKey().Kind().String() + ", " + f.MapValue().Kind().String() + ">"
	case f.Kind() == protoreflect.EnumKind:
		return repeated + string(f.Enum().Name())
	case f.Kind() == protoreflect.MessageKind && f.Message().ParentFile().Package() != "slipway.v1":
		return repeated + string(f.Message().FullName())
	case f.Kind() == protoreflect.MessageKind:
		return repeated + string(f.Message().Name())
	}
	return repeated + f.Kind().String()
}

func relative(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "slipway.v1.")
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// added are the calls and messages beyond the specification. Fields beyond it have numbers from
// 100.
func added() []string {
	return []string{
		"rpc MachineService.SetMachinePhase SetMachinePhaseRequest Machine",
		"rpc MachineService.SetMachineAccess SetMachineAccessRequest Machine",
		"rpc PlanService.CreatePlan CreatePlanRequest Plan",
		"rpc RunService.RetryRun RetryRunRequest Run",
	}
}

func TestContract_HasEveryNameNumberAndType(t *testing.T) {
	t.Parallel()
	want, got := specifiedLines(t), generatedLines()
	require.Greater(t, len(want), 120, "the specification was read")
	for _, line := range want {
		require.Contains(t, got, line)
	}
	messages := map[string]bool{}
	for _, line := range want {
		if name, ok := strings.CutPrefix(line, "message "); ok {
			messages[name] = true
		}
	}
	parameters := []string{"SshCommand", "Reboot", "SetNetboot", "RepaveImage", "KubeadmJoin", "VerifyInCluster", "NetReconfig", "RmaAction"}
	for _, line := range got {
		words := strings.Fields(line)
		owner, _, _ := strings.Cut(words[1], ".")
		switch {
		case slices.Contains(want, line), slices.Contains(added(), line):
		case words[0] == "field" && messages[owner] && !slices.Contains(parameters, owner):
			require.GreaterOrEqual(t, len(words[len(words)-1]), 3, "%s is not specified, so its number is 100 or more", line)
		case words[0] == "rpc", words[0] == "service", words[0] == "value":
			t.Errorf("%s is not specified", line)
		}
	}
}

func TestSamples_RoundTrip(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]proto.Message{
		"machine": &slipwayv1.Machine{}, "plan": &slipwayv1.Plan{}, "run": &slipwayv1.Run{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			require.NoError(t, err)
			require.NoError(t, protojson.Unmarshal(text, message))
			answer, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
			require.NoError(t, err)
			again := proto.Clone(message)
			proto.Reset(again)
			require.NoError(t, protojson.Unmarshal(answer, again))
			require.True(t, proto.Equal(message, again))

			var want, got any
			require.NoError(t, json.Unmarshal(text, &want))
			require.NoError(t, json.Unmarshal(answer, &got))
			requirePart(t, name, want, got)
		})
	}
}

// requirePart fails when want has something that got has not. The answer has more: what was added.
func requirePart(t *testing.T, at string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, at)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			require.Contains(t, object, key, at)
			requirePart(t, at+"."+key, want[key], object[key])
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok, at)
		require.Len(t, list, len(want), at)
		for i := range want {
			requirePart(t, at, want[i], list[i])
		}
	default:
		require.Equal(t, want, got, at)
	}
}

// An unset retry count takes the default of its kind; zero is no retry.
func TestStep_ZeroIsNotUnset(t *testing.T) {
	t.Parallel()
	var step slipwayv1.Step
	require.NoError(t, protojson.Unmarshal([]byte(`{"name": "a", "max_retries": 0}`), &step))
	require.NotNil(t, step.MaxRetries)
	require.Nil(t, step.TimeoutSeconds)
	wire, err := proto.Marshal(&step)
	require.NoError(t, err)
	var read slipwayv1.Step
	require.NoError(t, proto.Unmarshal(wire, &read))
	require.NotNil(t, read.MaxRetries)
	require.Nil(t, read.TimeoutSeconds)
}
