package e2e_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/scrub"
	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// planted is one failure of one step, on a node with everything that a tenant
// leaves (soft_reset), or without (storage_cleanup, which scrubs no GPU, so that
// those of a validation do not wait for that).
type planted struct {
	kind lifecycle.TaskKind
	step string
	mode lifecycle.DecommissionMode
	at   string // the stage that parks; by default that of the kind
	// faults are there from the beginning; drained is done when the drain has
	// ended, down while the machine is off between scrub and validation, up once
	// the system is up again.
	faults            simnode.Faults
	drained, down, up func(*faultNode) error
	says              string
}

// faultNode is a simulated node with the faults that are injected at its next boot.
type faultNode struct {
	*simnode.Node
	machine *simhw.Machine

	mu       sync.Mutex
	down, up func(*faultNode) error
	errs     []error
}

func newFaultNode(w *world, m *simhw.Machine) *faultNode {
	h := &faultNode{Node: w.Sims.Nodes[m.Spec().ID], machine: m}
	m.Subscribe(func(ev simhw.Event) {
		switch ev.Kind {
		case simhw.EventOSDown:
			h.inject(&h.down)
		case simhw.EventOSUp:
			go h.injectIfUp()
		case simhw.EventPower, simhw.EventBoot, simhw.EventErased:
		}
	})
	return h
}

// inject calls a planned fault once.
func (h *faultNode) inject(what *func(*faultNode) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if do := *what; do != nil {
		*what = nil
		h.errs = append(h.errs, do(h))
	}
}

// injectIfUp waits for sshd: it answers when all of the boot is laid out, and
// before the agent is started.
func (h *faultNode) injectIfUp() {
	for range 10_000 {
		if conn, err := net.DialTimeout("tcp", h.SSHAddress(), time.Second); err == nil {
			_ = conn.Close()
			h.inject(&h.up)
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

func (h *faultNode) planFaults(p planted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down, h.up, h.errs = p.down, p.up, nil
}

// put appends to a file of the node.
func (h *faultNode) put(path, text string) error {
	path = filepath.Join(h.Root(), path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

func file(path, text string) func(*faultNode) error {
	return func(h *faultNode) error { return h.put(path, text) }
}

func faults(f simnode.ScrubFaults) func(*faultNode) error {
	return func(h *faultNode) error { return h.SetFaults(simnode.Faults{Scrub: f}) }
}

// miner puts a process of an unknown account on the node.
func miner(h *faultNode) error {
	return h.put("proc/4343/status", "Name:\tminer\nState:\tS (sleeping)\nPid:\t4343\nUid:\t1003\t1003\t1003\t1003\n")
}

// plantedFailures has one row at least for each step of a scrub and of a
// validation. Those of the scrub come last: a retry of them boots the machine,
// whose agent then reports at once that it is well.
func plantedFailures() []planted {
	soft, storage := lifecycle.ModeSoftReset, lifecycle.ModeStorageCleanup
	inScrub := func(step string, f simnode.ScrubFaults, says string) planted {
		return planted{kind: lifecycle.TaskKindScrub, step: step, mode: soft, faults: simnode.Faults{Scrub: f}, says: says}
	}
	inCheck := func(step, says string) planted {
		return planted{kind: lifecycle.TaskKindValidate, step: step, mode: storage, says: says}
	}
	with := func(p planted, change func(*planted)) planted { change(&p); return p }
	return []planted{
		with(inCheck(scrub.StepFreshBoot, "ANOTHER"), func(p *planted) { p.down = faults(simnode.ScrubFaults{OtherMachine: true}) }),
		with(inCheck(scrub.StepContainers, "1 containers: c0ffee"), func(p *planted) { p.down = file("../state/containers", "c0ffee\n") }),
		with(inCheck(scrub.StepProcesses, "miner"), func(p *planted) { p.up = miner }),
		with(inCheck(scrub.StepUsers, "mallory"), func(p *planted) {
			p.down = file("etc/passwd", "mallory:x:1002:1002::/home/mallory:/bin/bash\n")
		}),
		with(inCheck(scrub.StepKeys, "authorized_keys"), func(p *planted) { p.down = file("root/.ssh/authorized_keys", "ssh-ed25519 AAAA mallory\n") }),
		with(inCheck(scrub.StepAutostart, "miner.service"), func(p *planted) {
			p.down = file("etc/systemd/system/miner.service", "[Service]\nExecStart=/miner\n")
		}),
		with(inCheck(scrub.StepMounts, "/mnt/tenants/a"), func(p *planted) {
			p.up = file("proc/mounts", "nas:/tenants /mnt/tenants/a nfs4 rw,relatime 0 0\n")
		}),
		with(inCheck(scrub.StepFiles, "/var/tmp is no directory but a link"), func(p *planted) { p.down = faults(simnode.ScrubFaults{TemporaryIsLink: true}) }),
		with(inCheck(scrub.StepDiskBlank, "nvme0n1"), func(p *planted) { p.down = (*faultNode).Fill }),
		with(inCheck(scrub.StepHardware, "8 GPUs expected, 7 found"), func(p *planted) { p.faults.MissingGPUs = 1 }),
		with(inCheck(scrub.StepHardware, "ECC"), func(p *planted) { p.faults.ECCUnknown = true }),
		with(inCheck(scrub.StepGPUState, "is used by 1 processes"), func(p *planted) { p.faults.Scrub.GPUProcess = true }),
		with(inCheck(scrub.StepGPUFabric, "fabric"), func(p *planted) { p.faults.Scrub.FabricDown = true }),
		with(inCheck(scrub.StepGPUErrors, "79"), func(p *planted) { p.faults.Scrub.XID = 79 }),

		with(inScrub(scrub.StepIdentity, simnode.ScrubFaults{OtherMachine: true}, "ANOTHER"), func(p *planted) { p.at = lifecycle.StageCleanupStorage }),
		inScrub(scrub.StepContainers, simnode.ScrubFaults{ContainerStays: true}, "c0ffee"),
		with(inScrub(scrub.StepProcesses, simnode.ScrubFaults{}, "miner"), func(p *planted) {
			p.drained = func(h *faultNode) error {
				return errors.Join(faults(simnode.ScrubFaults{ProcessStays: true})(h), miner(h))
			}
		}),
		inScrub(scrub.StepUsers, simnode.ScrubFaults{UserStays: true}, "tenant1"),
		inScrub(scrub.StepKeys, simnode.ScrubFaults{KeysUnreadable: true}, "keys of root"),
		inScrub(scrub.StepAutostart, simnode.ScrubFaults{PackagesUnknown: true}, "cannot be told"),
		with(inScrub(scrub.StepMounts, simnode.ScrubFaults{MountBusy: true}, "/mnt/tenants/a"), func(p *planted) { p.at = lifecycle.StageCleanupStorage }),
		inScrub(scrub.StepLayers, simnode.ScrubFaults{LayerStays: true}, "md0 stays"),
		inScrub(scrub.StepRemoteDevices, simnode.ScrubFaults{RemoteStays: true}, "stays connected"),
		inScrub(scrub.StepFiles, simnode.ScrubFaults{TemporaryIsLink: true}, "/var/tmp is no directory but a link"),
		inScrub(scrub.StepGPUProcesses, simnode.ScrubFaults{GPUProcess: true}, "python3"),
		inScrub(scrub.StepGPUReset, simnode.ScrubFaults{GPUMIGUnknown: true}, "N/A"),
		inScrub(scrub.StepGPUReset, simnode.ScrubFaults{GPUResetFails: true}, "in use by another process"),
		inScrub(scrub.StepGPUMemory, simnode.ScrubFaults{GPUMemoryResidue: true}, "something was left in its memory"),
		inScrub(scrub.StepMemoryRequest, simnode.ScrubFaults{MemoryRequestRefused: true}, "MemoryOverwriteRequestControl"),
		inScrub(scrub.StepDisks, simnode.ScrubFaults{SanitizeFails: true}, "sanitize operation failed"),
		inScrub(scrub.StepDisks, simnode.ScrubFaults{FrozenDrive: true}, "frozen by the firmware"),
		with(inScrub(scrub.StepDisks, simnode.ScrubFaults{EraseKeepsData: true}, "written before it was erased"), func(p *planted) {
			p.mode, p.at = storage, lifecycle.StageCleanupStorage
		}),
	}
}

// TestEveryStepHasAPlantedFailure checks that each step has a row.
func TestEveryStepHasAPlantedFailure(t *testing.T) {
	t.Parallel()
	for kind, steps := range map[lifecycle.TaskKind][]string{lifecycle.TaskKindScrub: scrub.Steps(), lifecycle.TaskKindValidate: scrub.ValidateSteps()} {
		for _, step := range steps {
			require.True(t, slices.ContainsFunc(plantedFailures(), func(p planted) bool { return p.kind == kind && p.step == step }),
				"nothing makes the step %s of %s fail: add a row to plantedFailures()", step, kind)
		}
	}
}

// plantedRowsOfAKind is how many rows of each kind of task `make test` plays; `make proof` plays
// all.
const plantedRowsOfAKind = 4

// TestPlantedFailures_Quarantine checks that a failure of a step ends with the node in quarantine
// and the stage and the step named, and that the last job of each node completes when the cause is
// gone. `make test` plays a sample of the rows.
func TestPlantedFailures_Quarantine(t *testing.T) {
	t.Parallel()
	kinds := map[lifecycle.TaskKind][]planted{}
	for _, p := range plantedFailures() {
		kinds[p.kind] = append(kinds[p.kind], p)
	}
	var rows []planted
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindValidate, lifecycle.TaskKindScrub} {
		rows = append(rows, runenv.Sample(t, rowsVar, string(kind), kinds[kind], plantedRowsOfAKind)...)
	}
	specs := make([]simhw.Spec, min(4, (len(rows)+1)/2))
	first := machineNumbers(len(specs))
	for i := range specs {
		spec := simhw.GPUServer(simhw.Vendors[i], first+i)
		spec.Disks = slices.Insert(spec.Disks, len(spec.Disks)-1, simhw.Disk{Name: "sdb", Model: "SIM SATA SSD", Serial: "D" + spec.Serial, Bytes: 960_197_124_096})
		specs[i] = spec
	}
	w := newWorld(t, stack.Options{Specs: specs})
	nodes := w.activeNodes(t)
	for i, spec := range specs {
		m := w.Sims.Fleet.ByID(spec.ID)
		t.Run(spec.Vendor, func(t *testing.T) {
			t.Parallel()
			h := newFaultNode(w, m)
			var last db.Job
			for k := i; k < len(rows); k += len(specs) {
				if last.ID != "" {
					w.cancelParked(t, last, nodes[m])
				}
				last = w.runRow(t, h, nodes[m], rows[k])
			}
			require.NoError(t, h.SetFaults(simnode.Faults{}))
			require.Equal(t, http.StatusOK, w.act(t, "ops", last.ID, lifecycle.ActionRetryStage, "").code)
			j := w.ends(t, last.ID, patience)
			require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
			w.activeAgain(t, nodes[m])
		})
	}
}

// runRow runs one row until its job parks.
func (w *world) runRow(t *testing.T, h *faultNode, nodeID string, p planted) db.Job {
	t.Helper()
	name := string(p.kind) + "/" + p.step + ": " + p.says
	began := time.Now()
	defer func() { t.Logf("%s: %s", name, time.Since(began).Round(time.Millisecond)) }()
	require.NoError(t, h.SetFaults(p.faults), name)
	if p.mode == lifecycle.ModeSoftReset {
		require.NoError(t, h.Occupy(), name)
	}
	h.planFaults(p)
	j := w.leave(t, nodeID, p.mode)
	if p.drained != nil {
		require.Eventually(t, func() bool {
			return slices.Contains([]string{lifecycle.StageCleanupStorage, lifecycle.StageScrubGPU}, w.job(t, j.ID).Stage)
		}, runenv.Patience(patience), 5*time.Millisecond, name)
		require.NoError(t, p.drained(h), name)
	}
	j = w.ends(t, j.ID, patience)
	h.mu.Lock()
	for _, err := range h.errs {
		require.NoError(t, err, name)
	}
	h.mu.Unlock()
	at := p.at
	if at == "" {
		at = map[lifecycle.TaskKind]string{lifecycle.TaskKindScrub: lifecycle.StageScrubGPU, lifecycle.TaskKindValidate: lifecycle.StageValidateClean}[p.kind]
	}
	require.Equal(t, at, j.FailedStage, "%s: %s, %s: %s", name, j.Status, j.FailureClass, j.Message)
	require.Contains(t, j.Message, p.step+":", name)
	require.Contains(t, j.Message, p.says, name)
	require.Equal(t, lifecycle.JobFailedManual, j.Status, name)
	require.Equal(t, lifecycle.NodeQuarantined, w.node(t, nodeID).Status, name)
	if p.says == "ANOTHER" {
		// The data of another machine is no evidence of this node, and no certificate is written.
		require.Equal(t, lifecycle.FailOtherMachine, j.FailureClass, name)
		rows, err := evidencedb.CertificatesOfNode(t.Context(), w.App.Store, nodeID)
		require.NoError(t, err)
		require.False(t, slices.ContainsFunc(rows, func(c evidencedb.Certificate) bool { return c.RunID == j.ID }), name)
		if p.step == scrub.StepIdentity {
			held, err := h.DiskHolds("nvme0n1", simnode.TenantMark)
			require.NoError(t, err)
			require.True(t, held, "%s: nothing was touched", name)
		}
		return j
	}
	require.Contains(t, []lifecycle.FailureClass{lifecycle.FailScrubUnverified, lifecycle.FailNodeUnhealthy}, j.FailureClass, name)
	c := w.newest(t, nodeID)
	require.Equal(t, j.ID, c.Run.ID, name)
	require.Equal(t, evidence.VerdictNotVerified, c.Verdict, name)
	failed := slices.IndexFunc(c.Steps, func(s lifecycle.StepResult) bool { return !s.OK && s.Skipped == "" })
	require.GreaterOrEqual(t, failed, 0, name)
	require.Equal(t, string(p.kind)+"/"+p.step, c.Steps[failed].Name, "%s: the certificate names the step", name)
	return j
}

// newest is the last certificate of a node.
func (w *world) newest(t *testing.T, nodeID string) evidence.Certificate {
	t.Helper()
	rows, err := evidencedb.CertificatesOfNode(t.Context(), w.App.Store, nodeID)
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	var c evidence.Certificate
	require.NoError(t, json.Unmarshal(rows[len(rows)-1].Payload, &c))
	return c
}

// cancelParked cancels a parked job, so that the node's next one can begin.
func (w *world) cancelParked(t *testing.T, j db.Job, nodeID string) {
	t.Helper()
	begun := j.FailureClass != lifecycle.FailNodeTask
	require.Equal(t, http.StatusOK, w.act(t, "ops", j.ID, lifecycle.ActionCancel, "").code)
	require.Equal(t, lifecycle.JobCancelled, w.ends(t, j.ID, patience).Status)
	if begun {
		require.Equal(t, lifecycle.NodeQuarantined, w.node(t, nodeID).Status, "nothing proves a node clean whose scrub failed")
	}
}
