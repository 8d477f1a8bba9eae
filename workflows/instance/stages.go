package instance

import (
	"context"
	"time"

	"go.temporal.io/sdk/workflow"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// acts names the activities; it is nil.
var acts *instanceact.Activities

const (
	shortDeadline  = 5 * time.Minute
	createDeadline = 15 * time.Minute
	// bootDeadline bounds a stage of the startup, whose own time ends earlier: that of the whole
	// startup.
	bootDeadline = 3 * time.Hour
	// SSHLimit is how long a server that runs may take to accept a login.
	SSHLimit = 3 * time.Minute
	// defaultStartup is for a type that states none.
	defaultStartup = 30 * time.Minute
)

// stagesOf returns the stages of a job with their action types and percentages.
func stagesOf(steps []lifecycle.InstanceStep, all map[string]stage.Stage[State]) []stage.Stage[State] {
	out := make([]stage.Stage[State], 0, len(steps))
	for _, step := range steps {
		st := all[step.Stage]
		st.Name, st.ActionType, st.Percent = step.Stage, step.ActionType, step.Percent
		if st.Weight == 0 {
			st.Weight = 1
		}
		out = append(out, st)
	}
	return out
}

type activity = func(context.Context, contract.JobRef) (contract.InstanceFacts, error)

// do runs an activity that is told nothing but the job, and keeps what it found.
func do(kind stage.Kind, at, summary string, act activity) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		f, err := stage.Do(ctx, kind, summary, act, s.Job.At(at))
		s.keep(f, err)
		return err
	}
}

// keep stores what an activity found of the instance. An empty fact leaves the stored one.
func (s *State) keep(f contract.InstanceFacts, err error) {
	if err != nil {
		return
	}
	if f.Provider != "" {
		s.Facts.Provider, s.Facts.Zone, s.Facts.StartupSeconds = f.Provider, f.Zone, f.StartupSeconds
	}
	if f.ServerID != "" {
		s.Facts.ServerID = f.ServerID
	}
	if f.IPAddress != "" {
		s.Facts.IPAddress = f.IPAddress
	}
	s.Facts.GrowsVolume = s.Facts.GrowsVolume || f.GrowsVolume
}

func createStages() []stage.Stage[State] {
	return stagesOf(lifecycle.InstanceCreateSteps(), map[string]stage.Stage[State]{
		lifecycle.StageAcceptCreate: {Deadline: shortDeadline, Doc: "read the request of the instance",
			Run: do(stage.KindLocalWork, lifecycle.StageAcceptCreate, "read the instance", acts.LoadInstance)},
		lifecycle.StageCheckProvider: {Deadline: shortDeadline, Doc: "check the key, the project, the type and the image at the provider",
			Run: do(stage.KindPoll, lifecycle.StageCheckProvider, "check the provider", acts.CheckCloud)},
		lifecycle.StageCreateServer: {Weight: 4, Deadline: createDeadline, Doc: "make the security group and the stopped server; look for its tag before it is ordered again",
			Run:  do(stage.KindPoll, lifecycle.StageCreateServer, "make the server", acts.CreateServer),
			Undo: deleteEverything, VerifyUndo: verifyDeleted},
		lifecycle.StagePersistServer: {Deadline: shortDeadline, Doc: "store what the provider has made",
			Run: do(stage.KindPoll, lifecycle.StagePersistServer, "store the server", acts.PersistServer)},
		lifecycle.StageClaimVolume: {Deadline: shortDeadline, Doc: "tag the root volume, which the provider made without a tag",
			Run: do(stage.KindPoll, lifecycle.StageClaimVolume, "tag the volume", acts.ClaimVolumes)},
		lifecycle.StageResizeVolume: {Weight: 2, Deadline: createDeadline, Doc: "grow the root volume before the first start, and read the size back",
			Skip: func(s *State) string {
				if s.Facts.GrowsVolume {
					return ""
				}
				return "the volumes of this type have their size"
			},
			Run: do(stage.KindPoll, lifecycle.StageResizeVolume, "grow the volume", acts.GrowVolume)},
		lifecycle.StageServerCreated: {Deadline: shortDeadline, Doc: "the instance is booting", Run: beginBoot},
		lifecycle.StageStartServer: {Weight: 2, Deadline: bootDeadline, Waits: true, Doc: "give the server its host key, and start it",
			DeadlineClass: lifecycle.FailInstanceStartup, Run: startServer},
		lifecycle.StageGetAddress: {Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup, Doc: "wait for the public address",
			Run: wait(lifecycle.StageGetAddress, "wait for the address", acts.WaitForAddress)},
		lifecycle.StageVerifyGroup: {Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup, Doc: "have the rules of the security group in force",
			Run: wait(lifecycle.StageVerifyGroup, "verify the security group", acts.VerifySecurityGroup)},
		lifecycle.StageWaitSSH: {Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup, Doc: "wait until the server accepts a login by SSH",
			Run: waitSSH},
		lifecycle.StageInstallWorker: {Weight: 4, Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup,
			Doc: "install the worker by the versioned script", Run: installWorker},
		lifecycle.StageWaitHTTP: {Weight: 4, Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup, Doc: "wait until vLLM answers",
			Run: wait(lifecycle.StageWaitHTTP, "wait for vLLM", acts.WaitForVLLM)},
		lifecycle.StageWaitModel: {Weight: 4, Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup, Doc: "wait until vLLM lists the model",
			Run: wait(lifecycle.StageWaitModel, "wait for the model", acts.WaitForModel)},
		lifecycle.StageWarmUp: {Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup, Doc: "have the model complete one token",
			Run: wait(lifecycle.StageWarmUp, "warm the model up", acts.WarmUpModel)},
		lifecycle.StageCheckHealth: {Deadline: bootDeadline, Waits: true, DeadlineClass: lifecycle.FailInstanceStartup,
			Doc: "check the worker's health, and that its agent is the installed one",
			Run: wait(lifecycle.StageCheckHealth, "check the health", acts.CheckHealth)},
		lifecycle.StageInstanceReady: {Deadline: shortDeadline, Doc: "the instance is ready",
			Run: do(stage.KindLocalWork, lifecycle.StageInstanceReady, "read the instance once more", acts.LoadInstance)},
	})
}

func beginBoot(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindLocalWork, "begin to boot", acts.BeginBoot, s.Job.At(lifecycle.StageServerCreated))
	s.keep(f, err)
	if err == nil {
		s.Boots = true
	}
	return err
}

// until returns when the startup has taken too long. It begins with the first stage that asks, and
// again after it has failed.
func (s *State) until(ctx workflow.Context) time.Time {
	if s.ReadyBy.IsZero() {
		limit := defaultStartup
		if s.Facts.StartupSeconds > 0 {
			limit = time.Duration(s.Facts.StartupSeconds) * time.Second
		}
		s.ReadyBy = workflow.Now(ctx).Add(limit)
	}
	return s.ReadyBy
}

// ended takes note of a startup that has failed: what is tried again has its whole time.
func (s *State) ended(err error) error {
	if err != nil && !stage.Unfinished(err) {
		s.ReadyBy = time.Time{}
	}
	return err
}

type waiting = func(context.Context, contract.InstanceWait) (contract.InstanceFacts, error)

// wait runs an activity that waits for a part of the startup.
func wait(at, summary string, act waiting) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		f, err := stage.Do(ctx, stage.KindPoll, summary, act, contract.InstanceWait{JobRef: s.Job.At(at), Until: s.until(ctx)})
		s.keep(f, err)
		return s.ended(err)
	}
}

func startServer(ctx workflow.Context, s *State) error {
	if _, err := stage.Do(ctx, stage.KindPoll, "give the server its keys", acts.PrepareServer, s.Job.At(lifecycle.StageStartServer)); err != nil {
		return s.ended(err)
	}
	return wait(lifecycle.StageStartServer, "start the server", acts.StartServer)(ctx, s)
}

func waitSSH(ctx workflow.Context, s *State) error {
	until := s.until(ctx)
	if limit := workflow.Now(ctx).Add(SSHLimit); limit.Before(until) {
		until = limit
	}
	_, err := stage.Do(ctx, stage.KindPoll, "wait for SSH", acts.WaitForSSH, contract.InstanceWait{JobRef: s.Job.At(lifecycle.StageWaitSSH), Until: until})
	return s.ended(err)
}

func installWorker(ctx workflow.Context, s *State) error {
	in := contract.InstanceWait{JobRef: s.Job.At(lifecycle.StageInstallWorker), Until: s.until(ctx)}
	p, err := stage.Do(ctx, stage.KindPoll, "install the worker", acts.InstallWorker, in)
	if err == nil {
		s.Worker = p
	}
	return s.ended(err)
}

func terminateStages() []stage.Stage[State] {
	const long = time.Hour
	return stagesOf(lifecycle.InstanceTerminateSteps(), map[string]stage.Stage[State]{
		lifecycle.StageAcceptTerminate: {Deadline: shortDeadline, Doc: "read the request of the termination",
			Run: do(stage.KindLocalWork, lifecycle.StageAcceptTerminate, "read the instance", acts.LoadInstance)},
		lifecycle.StageDrainInstance: {Deadline: 25 * time.Hour, Waits: true, Doc: "wait until the worker has ended its work, as long as the request allows",
			Run: do(stage.KindQueue, lifecycle.StageDrainInstance, "drain the instance", acts.DrainInstance)},
		lifecycle.StageStopServer: {Deadline: long, Doc: "stop the server",
			Run: do(stage.KindPoll, lifecycle.StageStopServer, "stop the server", acts.StopServer)},
		lifecycle.StageDeleteServer: {Deadline: long, Doc: "delete the server, and wait until the provider has it no more",
			Run: do(stage.KindPoll, lifecycle.StageDeleteServer, "delete the server", acts.DeleteServer)},
		lifecycle.StageDeleteVolumes: {Deadline: long, Doc: "delete what the provider keeps of a deleted server: volumes, snapshots, addresses, its security group",
			Run: do(stage.KindPoll, lifecycle.StageDeleteVolumes, "delete what is left", acts.DeleteResources)},
		lifecycle.StageProveDeleted: {Deadline: long, Doc: "prove that the provider has nothing of the instance any more",
			Run: do(stage.KindPoll, lifecycle.StageProveDeleted, "prove that nothing is left", acts.ProveDeleted)},
	})
}

// deleteEverything reverts the creation of the server, whatever was made after it.
func deleteEverything(ctx workflow.Context, s *State) error {
	for _, step := range []struct {
		summary string
		act     activity
	}{{"stop the server", acts.StopServer}, {"delete the server", acts.DeleteServer}, {"delete what is left", acts.DeleteResources}} {
		if _, err := stage.Do(ctx, stage.KindPoll, step.summary, step.act, s.Job.At(lifecycle.StageCreateServer)); err != nil {
			return err
		}
	}
	return nil
}

func verifyDeleted(ctx workflow.Context, s *State) (string, error) {
	f, err := stage.Do(ctx, stage.KindPoll, "prove that nothing is left", acts.ReadLeft, s.Job.At(lifecycle.StageCreateServer))
	return f.Note, err
}
