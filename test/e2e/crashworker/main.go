// Command crashworker is slipwayd's worker with a fuse: it kills itself with
// SIGKILL in the middle of the stages and activities that a plan names, once
// each. Only the end-to-end tests build it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/providers/kube"
	"github.com/slipway-cloud/slipway/test/e2e/places"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "crashworker:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	fs := pflag.NewFlagSet("crashworker", pflag.ContinueOnError)
	dir := fs.String("plan-dir", "", "folder with plan.json: job id to the points to die at, stages or names of activities with spaces between them")
	machine := fs.String("places", "", "file with the places of a simulated machine")
	src := config.Flags(fs)
	if err := fs.Parse(os.Args[1:]); err != nil {
		return err
	}
	cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartTemporal, config.PartAgent, config.PartSecrets, config.PartWorker)
	if err != nil {
		return err
	}
	app, err := server.Open(ctx, cfg, os.Stderr)
	if err != nil {
		return err
	}
	defer app.Close()
	if *machine != "" {
		p, err := places.Read(*machine)
		if err != nil {
			return err
		}
		app.UseMachines(p.Adapters())
	}
	app.UseClusters(kube.Provider{})
	return app.RunWorker(ctx, &fuse{dir: *dir})
}

// fuse is an interceptor that dies after an activity's effect and before its
// answer: the moment at which a lost worker hurts most.
type fuse struct {
	interceptor.WorkerInterceptorBase
	dir string
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (f *fuse) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &burning{interceptor.ActivityInboundInterceptorBase{Next: next}, f}
}

type burning struct {
	interceptor.ActivityInboundInterceptorBase
	fuse *fuse
}

func (b *burning) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	ref, ok := ref(in.Args)
	if !ok || activity.GetInfo(ctx).IsLocalActivity {
		return b.Next.ExecuteActivity(ctx, in)
	}
	out, err := b.Next.ExecuteActivity(ctx, in)
	b.fuse.blow(ref, activity.GetInfo(ctx).ActivityType.Name)
	return out, err
}

func ref(args []any) (contract.JobRef, bool) {
	if len(args) == 0 {
		return contract.JobRef{}, false
	}
	r, ok := args[0].(interface{ Ref() contract.JobRef })
	if !ok {
		return contract.JobRef{}, false
	}
	return r.Ref(), true
}

// blow kills the process if the plan says so and it has not happened before:
// the marker is on disk first.
func (f *fuse) blow(r contract.JobRef, activity string) {
	raw, err := os.ReadFile(filepath.Join(f.dir, "plan.json"))
	if err != nil {
		return
	}
	plan := map[string]string{}
	if json.Unmarshal(raw, &plan) != nil {
		return
	}
	for _, point := range strings.Fields(plan[r.JobID]) {
		switch point {
		case r.Stage:
			f.die("died-" + r.JobID)
		case activity:
			f.die("died-" + r.JobID + "-" + point)
		}
	}
}

func (f *fuse) die(name string) {
	marker, err := os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = marker.Close()
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	time.Sleep(time.Minute) // the signal arrives first
}
