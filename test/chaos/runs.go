package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The steps of the runs.
const (
	stepFirst   = "first"
	stepRestart = "restart"
	stepFails   = "fails"
	stepLast    = "last"
)

// MachineRuns is the set of runs on machines that are linked to a node in service: a command, a
// restart by the BMC of the node, and another command. No command may run twice.
func MachineRuns() []*ScenarioSet {
	kind := contract.KindMachineRun
	first, last := Point{Stage: stepFirst, Activity: "RunCommand"}, Point{Stage: stepLast, Activity: "RunCommand"}
	restart := remote(stepRestart, "ReadBootID", stepRestart, "Reboot")
	straight := append([]Point{first, last}, restart...)
	compensated := []Point{project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))}
	stopped := append(remote(stepLast, "StopCommand"), compensated...)
	return []*ScenarioSet{{
		Name: string(kind), Kind: kind, Stages: []string{stepFirst, stepRestart, stepFails, stepLast}, Start: startRun,
		Also: append(remote(stepFirst, "StopCommand", stepFails, "StopCommand"), project(stepFails)),
		Paths: []Path{
			runPath("commands", runSteps{stepFirst, stepLast}, append([]Point{first, last}, projectionsOfRun(stepFirst, stepLast)...)),
			runPath("restart", runSteps{stepFirst, stepRestart, stepLast}, append(straight, projectionsOfRun(stepFirst, stepRestart, stepLast)...)).thatRestarts(),
			runPath(pathFails, runSteps{stepFirst, stepFails, stepLast}, append([]Point{first, {Stage: stepFails, Activity: "RunCommand"}}, compensated...)).thatFails(),
			runPath(pathCancelled, runSteps{stepFirst, stepLast}, stopped).cancelledAt(last),
		},
	}}
}

// The paths whose runs do not succeed.
const (
	pathFails     = "fails"
	pathCancelled = "cancelled"
)

// runSteps are the steps of a run, by their names.
type runSteps []string

func projectionsOfRun(steps ...string) []Point {
	out := []Point{{Stage: "load", Activity: "TakeJob", Local: true}}
	for _, s := range steps {
		out = append(out, project(s))
	}
	return append(out, project(string(lifecycle.JobCompleted)))
}

func runPath(name string, steps runSteps, points []Point) Path {
	return Path{
		Name: name, From: lifecycle.NodeActive, Keeps: lifecycle.NodeActive, Points: points,
		Prepare: func(ctx context.Context, t *Target) error { return t.prepareRun(ctx, steps) }, Check: checkRun(steps),
	}
}

// thatFails is a path whose run ends at a command that fails.
func (p Path) thatFails() Path {
	p.Ends, p.NoCancel = []lifecycle.JobStatus{lifecycle.JobCancelled}, true
	return p
}

// thatRestarts is a path whose run may fail where a killed worker left a login to the BMC open:
// another one would lock its account.
func (p Path) thatRestarts() Path {
	p.Ends = []lifecycle.JobStatus{lifecycle.JobCompleted, lifecycle.JobCancelled}
	return p
}

// cancelledAt is a path whose run is cancelled at a point; its clean-up gets the faults.
func (p Path) cancelledAt(at Point) Path {
	p.First, p.NoCancel = []Fault{{Point: at, Kind: Cancel, Variant: "before"}}, true
	return p
}

// runOf is the run of a case.
type runOf struct {
	plan    runplan.Plan
	request string
	counter string // the file that each command writes its name to
}

func (t *Target) machineID() string { return "m-" + t.Machine.Spec().ID }

// prepareRun registers the machine of the node, and makes the plan of the case. Each command counts
// in a file of the machine that it has run.
func (t *Target) prepareRun(ctx context.Context, steps runSteps) error {
	node := t.node()
	t.run = runOf{request: db.NewID("case"), plan: runplan.Plan{ID: db.NewID("plan")}}
	t.run.counter = filepath.Join(node.Root(), "var", "lib", "count-"+t.run.request)
	limit, retries := 60, 5
	for _, name := range steps {
		step := runplan.Step{Name: name, TimeoutSeconds: &limit}
		switch name {
		case stepRestart:
			step.Reboot, step.MaxRetries = &runplan.Reboot{Mode: runplan.RebootBMC}, &retries
		case stepFails:
			step.SSH = &runplan.SSHCommand{Command: fmt.Sprintf("echo %s >> %s\nexit 3\n", name, t.run.counter)}
		default:
			step.SSH = &runplan.SSHCommand{Command: fmt.Sprintf("echo %s >> %s\necho said-%s\n", name, t.run.counter, name)}
			if name == stepLast && t.Case.Path == pathCancelled {
				step.SSH.Command += "sleep 50\n" // the cancellation ends it
			}
		}
		t.run.plan.Steps = append(t.run.plan.Steps, step)
	}
	if err := countEffects(ctx, t); err != nil {
		return err
	}
	return t.Store.Tx(ctx, func(tx *db.Tx) error {
		in := machines.Registration{ID: t.machineID(), Spec: spec.MachineSpec{Provider: "ssh", SSHEndpoint: node.SSHAddress()}}
		if _, err := machines.Register(ctx, tx, in, bootedBy); err != nil {
			return err
		}
		if _, err := machines.SetAccess(ctx, tx, in.ID, machines.Access{NodeID: t.NodeID}, bootedBy); err != nil {
			return err
		}
		_, err := machines.CreatePlan(ctx, tx, t.run.plan, false, bootedBy)
		return err
	})
}

func startRun(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	run, err := machines.StartRun(ctx, tx, machines.Start{
		RequestID: t.run.request, MachineID: t.machineID(), Type: lifecycle.RunTypeUpgrade, PlanID: t.run.plan.ID,
		Offers: func(string) []runplan.Capability {
			return []runplan.Capability{runplan.CapInspect, runplan.CapRemoteExec}
		},
	}, bootedBy)
	if err != nil {
		return db.Job{}, err
	}
	return tx.Job(ctx, run.JobID)
}

// counted returns how often each command of the case has run.
func (t *Target) counted() (map[string]int, error) {
	raw, err := os.ReadFile(t.run.counter)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read what the commands counted: %w", err)
	}
	out := map[string]int{}
	for _, name := range strings.Fields(string(raw)) {
		out[name]++
	}
	return out, nil
}

// checkRun compares a run that ended with what it may do: each command at most once, the phase of
// the machine, and a state that its steps can have.
func checkRun(steps runSteps) func(context.Context, *Target, lifecycle.JobStatus) []Finding {
	return func(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
		f := &findings{}
		counted, err := t.counted()
		if err != nil {
			f.add(WrongEnd, "%v", err)
			return f.list
		}
		for _, name := range steps {
			f.atMost("executions of the command "+name, 1, counted[name])
		}
		now, err := t.effects(ctx)
		if err != nil {
			f.add(WrongEnd, "%v", err)
			return f.list
		}
		did, restarts := now.since(t.before), one(slices.Contains(steps, stepRestart))
		f.atMost("BMC switched off", restarts*(1+t.Overlaps("Reboot")), did.bmc.Resets["ForceOff"])
		f.none("changes at MAAS", sum(did.maas))
		f.none("installations", did.machine.Installs)
		if end == noExpectedEnd {
			return f.list
		}
		run, err := machinesdb.FindRunOfJob(ctx, t.Store, t.jobID())
		if err != nil {
			f.add(WrongEnd, "%v", err)
			return f.list
		}
		f.runEnded(ctx, t, run, end)
		f.stepsAgree(run, steps, counted)
		f.outputIsWhole(ctx, t, run)
		return f.list
	}
}

// runEnded: the run, its machine and its job agree on how it ended.
func (f *findings) runEnded(ctx context.Context, t *Target, run machinesdb.Run, end lifecycle.JobStatus) {
	t.mu.Lock()
	asked := t.cancelled != notAsked
	t.mu.Unlock()
	phase, machine := lifecycle.RunSucceeded, lifecycle.MachineReady
	switch {
	case end == lifecycle.JobCompleted:
	case t.Case.Path == pathFails, !asked && t.Case.Has(WorkerKilled) && run.FailureClass == lifecycle.FailBMCUnreachable && strings.Contains(run.Message, accountKept):
		phase, machine = lifecycle.RunFailed, lifecycle.MachineMaintenance
	case asked:
		phase, machine = lifecycle.RunCanceled, lifecycle.MachineMaintenance
	}
	if run.Status != phase {
		f.add(WrongEnd, "the run is %s, should be %s: %s %s", run.Status, phase, run.FailureClass, run.Message)
	}
	m, err := machinesdb.Get(ctx, t.Store, run.MachineID)
	if err != nil || m.Status != machine || m.ActiveRunID != nil {
		f.add(WrongEnd, "the machine is %s with run %v (%v), should be %s without one", m.Status, m.ActiveRunID, err, machine)
	}
}

// stepsAgree: steps succeed in their order, at most one failed, and the others wait. A command has
// run where its step succeeded.
func (f *findings) stepsAgree(run machinesdb.Run, steps runSteps, counted map[string]int) {
	before := lifecycle.StepSucceeded
	for i, row := range machinesdb.ViewOf(run).Steps {
		state := lifecycle.StepStateOf(row.State)
		switch {
		case state == lifecycle.StepRunning, before != lifecycle.StepSucceeded && state != lifecycle.StepWaiting,
			run.Status == lifecycle.RunSucceeded && state != lifecycle.StepSucceeded:
			f.add(WrongEnd, "step %s of a run that is %s is %s after one that is %s", row.Name, run.Status, state, before)
		}
		if before = state; state == lifecycle.StepSucceeded && steps[i] != stepRestart {
			f.exactly("executions of the command "+row.Name, 1, counted[row.Name])
		}
	}
}

// outputIsWhole: of each command that succeeded the output is stored once.
func (f *findings) outputIsWhole(ctx context.Context, t *Target, run machinesdb.Run) {
	chunks, err := machinesdb.LogsAfter(ctx, t.Store, run.ID, 0, maxChunks)
	if err != nil {
		f.add(WrongEnd, "%v", err)
	}
	said := map[string]string{}
	for _, c := range chunks {
		said[c.Step] += string(c.Data)
	}
	for _, row := range machinesdb.ViewOf(run).Steps {
		want := "said-" + row.Name + "\n"
		if row.Name != stepRestart && lifecycle.StepStateOf(row.State) == lifecycle.StepSucceeded && said[row.Name] != want {
			f.add(WrongEnd, "the output of step %s is %q, should be %q", row.Name, said[row.Name], want)
		}
	}
}

const maxChunks = 100
