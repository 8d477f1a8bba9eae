package maas_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
)

// nested is a machine, alone or in a list, that holds lists in lists.
func nested(depth int) string {
	return fmt.Sprintf(`{"system_id":%q,"status":4,"x":%s"]"%s}`, id, strings.Repeat("[", depth-1), strings.Repeat("]", depth-1))
}

// TestAnswersNestedTooDeep: the decoder below UpdateInterface, SetHardwareSync
// and SetPowerLogin reads an answer once for each level.
func TestAnswersNestedTooDeep(t *testing.T) {
	t.Parallel()
	const deep = 1200
	for name, body := range map[string]string{"object": nested(deep), "list": "[" + nested(deep) + "]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, answer(200, "application/json", body))
			m := open(t, s.URL)
			for _, op := range allReads() {
				pe := requireKind(t, op.run(within(t), m), providers.KindProtocol)
				require.Contains(t, pe.Message, "nested too deep", op.name)
			}
			for _, op := range allMutations() {
				pe := requireKind(t, op.run(within(t), m), providers.KindUncertain)
				require.Contains(t, pe.Message, "nested too deep", op.name)
			}
		})
	}
}

func TestDepthLimit(t *testing.T) {
	t.Parallel()
	ask := func(body string) error {
		_, err := open(t, newStub(t, answer(200, "application/json", body)).URL).Machine(within(t), id)
		return err
	}
	require.NoError(t, ask(nested(32)))
	requireKind(t, ask(nested(33)), providers.KindProtocol)
	brackets := strings.Repeat(`[{\"`, 100)
	require.NoError(t, ask(fmt.Sprintf(`{"system_id":%q,"status":4,"x":"%s\\"}`, id, brackets)), "brackets in a text nest nothing")
}

func TestRefusalNestedTooDeepKeepsItsStatus(t *testing.T) {
	t.Parallel()
	s := newStub(t, answer(403, "application/json", strings.Repeat("[", 20000)+strings.Repeat("]", 20000)))
	pe := requireKind(t, open(t, s.URL).PowerOn(within(t), id), providers.KindForbidden)
	require.Less(t, len(pe.Message), 300)
}

// TestOneMachineOfAListIsBounded: the list may be large, one machine may not.
func TestOneMachineOfAListIsBounded(t *testing.T) {
	t.Parallel()
	big := fmt.Sprintf(`{"system_id":%q,"status":4,"x":%q}`, id, strings.Repeat("a", 128<<10))
	s := newStub(t, answer(200, "application/json", "["+machineJSON("a00001", 4)+","+big+"]"))
	_, err := open(t, s.URL, maas.Options{MaxBody: 64 << 10}).FindMachines(within(t), providers.MAASQuery{Serial: "S1"})
	requireKind(t, err, providers.KindTooBig)
}
