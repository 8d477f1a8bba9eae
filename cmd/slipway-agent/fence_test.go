package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// nodeFixture is a simulated node that is up and that a tenant has left, with the
// handlers of the real program.
type nodeFixture struct {
	*testing.T
	node     *simnode.Node
	machine  *simhw.Machine
	root     string
	handlers task.Registry
}

func newNodeFixture(t *testing.T) *nodeFixture {
	t.Helper()
	dir := t.TempDir()
	w := &nodeFixture{T: t, root: filepath.Join(dir, "root"), machine: simhw.NewMachine(t.Context(), simhw.NewClock(5000), simhw.GPUServer("Dell", 7))}
	var err error
	w.node, err = simnode.New(simnode.Options{Machine: w.machine, Dir: dir, AgentBinary: "/bin/false"})
	require.NoError(t, err)
	t.Cleanup(w.node.Close)
	w.machine.Install(simhw.OS{System: "ubuntu", Series: "jammy", Hostname: "gpu-07", Disk: "sda"})
	w.machine.SetBootOverride(simhw.Override{Target: "Hdd", Enabled: "Continuous"})
	w.machine.PowerOn("test")
	require.Eventually(t, func() bool { // sshd answers when everything is laid out
		conn, err := net.Dial("tcp", w.node.SSHAddress())
		return err == nil && conn.Close() == nil
	}, runenv.Patience(30*time.Second), 5*time.Millisecond)
	require.NoError(t, w.node.Occupy())
	cfg := agentconfig.Config{Root: w.root, ToolsPath: filepath.Join(dir, "tools") + ":/usr/bin:/bin", ToolTimeout: time.Minute, Simulated: true}
	w.handlers = moreHandlers(cfg, "/var/lib/x")
	return w
}

func (w *nodeFixture) task(kind lifecycle.TaskKind, serial string) lifecycle.TaskResult {
	w.Helper()
	req := task.Request{Task: protocol.Task{ID: "t1", BootID: w.machine.BootID()}, Args: &spec.ScrubArgs{RunID: "job_1", Serial: serial}}
	if kind == lifecycle.TaskKindValidate {
		req.Args = &spec.ValidateArgs{RunID: "job_1", Serial: serial}
	}
	return w.handlers[kind].Run(w.Context(), req, task.NewRecorder(nil, nil, nil))
}

func (w *nodeFixture) holds(disk string) bool {
	w.Helper()
	yes, err := w.node.DiskHolds(disk, simnode.TenantMark)
	require.NoError(w, err)
	return yes
}

// The serial number of the node's record comes with the task's arguments, and a
// machine that shows another is not touched.
func TestATaskForAnotherMachineIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	mine := w.machine.Spec().Serial
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindScrub, lifecycle.TaskKindValidate} {
		res := w.task(kind, "ANOTHER")
		require.False(t, res.OK)
		require.Contains(t, res.Message, "this machine has serial number "+mine+" and the task is for ANOTHER")
		require.Equal(t, lifecycle.TaskCodeOtherMachine, res.Code)
		require.Len(t, res.Steps, 1, "nothing is done")
	}
	require.NoError(t, w.node.SetFaults(simnode.Faults{Scrub: simnode.ScrubFaults{OtherMachine: true}}))
	res := w.task(lifecycle.TaskKindScrub, mine)
	require.Equal(t, lifecycle.TaskCodeOtherMachine, res.Code)
	require.Contains(t, res.Message, "this machine has serial number ANOTHER and the task is for "+mine)
	require.True(t, w.holds("nvme0n1"))
	require.DirExists(t, filepath.Join(w.root, "home/tenant1"))

	require.NoError(t, w.node.SetFaults(simnode.Faults{}))
	res = w.task(lifecycle.TaskKindScrub, mine)
	require.True(t, res.OK, res.Message)
	require.Contains(t, res.Steps[0].Detail, "serial number "+mine+", as the task says")
	require.False(t, w.holds("nvme0n1"))
}

// A serial number that stands for none tells no machine from another: nothing is
// compared, and the result says so.
func TestASerialNumberThatStandsForNoneIsNotCompared(t *testing.T) {
	t.Parallel()
	const dmi = "sys/class/dmi/id/"
	for name, c := range map[string]struct {
		asked  string
		shown  map[string]string // what the firmware shows
		says   string
		refuse bool
	}{
		"the task names none":       {"", map[string]string{"product_serial": "S1"}, `serial number "S1", not compared: the task names none`, false},
		"the record holds a filler": {"To Be Filled By O.E.M.", map[string]string{"product_serial": "S1"}, `"To Be Filled By O.E.M.", which the task names, tells no machine from another`, false},
		"both show the filler":      {"Default string", map[string]string{"product_serial": "Default string"}, "not compared", false},
		"zeros":                     {"00000000", map[string]string{"product_serial": "S1"}, "not compared", false},
		"None":                      {"None", map[string]string{"product_serial": "S1"}, "not compared", false},
		"the firmware shows none":   {"S1", map[string]string{"product_serial": " ", "board_serial": "Default string"}, "the firmware shows no serial number, and the task is for S1", true},
		"no such file":              {"S1", nil, "the firmware shows no serial number", true},
		"it cannot be read":         {"S1", map[string]string{"product_serial/x": ""}, "cannot be read; the task is for S1", true},
		"another case":              {"abc12", map[string]string{"product_serial": "ABC12 "}, "serial number abc12, as the task says", false},
		"the board's":               {"CN7475155P00BV", map[string]string{"product_serial": "TAG123", "board_serial": ".TAG123.CN7475155P00BV."}, "as the task says", false},
		"the case's":                {"C9", map[string]string{"product_serial": "Default string", "chassis_serial": "C9"}, "as the task says", false},
		"a part of it only":         {"TAG12", map[string]string{"product_serial": "TAG123", "board_serial": ".TAG123.CN7."}, "this machine has serial number TAG123, .TAG123.CN7. and the task is for TAG12", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := simulated(t)
			for file, content := range c.shown {
				p := filepath.Join(cfg.Root, dmi, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
				require.NoError(t, os.WriteFile(p, []byte(content+"\n"), 0o600))
			}
			req := task.Request{Task: protocol.Task{ID: "t1", BootID: "boot-1"}, Args: &spec.ScrubArgs{RunID: "r1", Serial: c.asked, Steps: []string{"identity"}}}
			res := moreHandlers(cfg, "/var/lib/x")[lifecycle.TaskKindScrub].Run(t.Context(), req, task.NewRecorder(nil, nil, nil))
			require.Len(t, res.Steps, 1)
			require.Contains(t, res.Steps[0].Detail, c.says)
			require.Equal(t, !c.refuse, res.OK)
			if c.refuse {
				require.Equal(t, lifecycle.TaskCodeOtherMachine, res.Code)
			}
		})
	}
}
