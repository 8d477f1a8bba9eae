package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
)

// instanceTag is what the servers of an instance have at the account.
const instanceTag = "slipway-instance="

// checkInstance compares what the account has of an instance with the end of the job that makes it:
// one server in all, whatever happened; all of it after the end, or nothing where the job was
// undone.
func checkInstance(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	f.atMost("servers that were made for the instance", 1, t.clouds.sim.ServersMade(instanceTag+t.instance))
	if end == noExpectedEnd {
		return f.list
	}
	i, err := instancedb.Get(ctx, t.Store, t.instance)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return f.list
	}
	has := t.billed()
	if end == lifecycle.JobCancelled {
		code := lifecycle.InstanceCancelled
		if t.Case.Path == pathQuota {
			code = lifecycle.InstanceErrorCode(lifecycle.FailCloudQuota)
			f.none("servers that were made beyond the quota", t.clouds.sim.ServersMade(instanceTag+t.instance))
		}
		f.none("what is billed for an instance whose creation was undone", len(has))
		if !i.Status.Failed() || i.ErrorCode != code || i.ProgressPercent != 0 {
			f.add(WrongEnd, "the instance is %s with code %q at %d %%, should have failed with %s", i.Status, i.ErrorCode, i.ProgressPercent, code)
		}
		return f.list
	}
	f.exactly("servers that were made for the instance", 1, t.clouds.sim.ServersMade(instanceTag+t.instance))
	for _, kind := range []string{"server", "volume", "security_group"} {
		f.exactly("billed things of kind "+kind, 1, countKind(has, kind))
	}
	server := slices.ContainsFunc(has, func(b cloudsim.Billed) bool { return b.Kind == "server" && b.ID == i.ServerID })
	if i.Status != lifecycle.InstanceReady || i.ProgressPercent != 100 || !server {
		f.add(WrongEnd, "the instance is %s at %d %% with server %s, and the account has %v", i.Status, i.ProgressPercent, i.ServerID, has)
	}
	f.actionsOnce(ctx, t, lifecycle.InstanceCreateSteps())
	return f.list
}

// checkTerminated: nothing of the instance is billed, its server was one, and its worker counts no
// more.
func checkTerminated(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	f.atMost("servers that were made for the instance", 1, t.clouds.sim.ServersMade(instanceTag+t.instance))
	if end == noExpectedEnd {
		return f.list
	}
	f.none("what is billed for an instance that has ended", len(t.billed()))
	i, err := instancedb.Get(ctx, t.Store, t.instance)
	if err != nil || i.Status != lifecycle.InstanceTerminated || i.WorkerHash != nil {
		f.add(WrongEnd, "the instance is %s (%v), should be terminated, without a worker", i.Status, err)
	}
	f.actionsOnce(ctx, t, lifecycle.InstanceTerminateSteps())
	return f.list
}

// billed is what the account has with the tag of the instance.
func (t *Target) billed() []cloudsim.Billed {
	return slices.DeleteFunc(t.clouds.sim.Billed(), func(b cloudsim.Billed) bool { return !slices.Contains(b.Tags, instanceTag+t.instance) })
}

func countKind(all []cloudsim.Billed, kind string) int {
	n := 0
	for _, b := range all {
		n += one(b.Kind == kind)
	}
	return n
}

// billedWithoutRow are the things of the account that no live instance has: each is billed for
// nobody. Volumes that the provider made with a server get their tag later; until then they belong
// to the server.
func (t *environment) billedWithoutRow(ctx context.Context) ([]violation, error) {
	var out []violation
	for _, b := range t.clouds.sim.Billed() {
		if b.ServerID != "" {
			continue
		}
		k := slices.IndexFunc(b.Tags, func(tag string) bool { return strings.HasPrefix(tag, instanceTag) })
		if k < 0 {
			out = append(out, violation{text: fmt.Sprintf("nothing_is_billed_without_a_row: %s %s has no tag of an instance: %v", b.Kind, b.ID, b.Tags)})
			continue
		}
		i, err := instancedb.Get(ctx, t.store, strings.TrimPrefix(b.Tags[k], instanceTag))
		if err != nil && !instancedb.IsMissing(err) {
			return nil, err
		}
		if err != nil || !i.Status.Live() {
			out = append(out, violation{i.JobID, fmt.Sprintf("nothing_is_billed_without_a_row: %s %s has the tag %s, whose instance is %q", b.Kind, b.ID, b.Tags[k], i.Status)})
		}
	}
	return out, nil
}

// actionsOnce: each action of the job has succeeded once in the action log. Health checks are
// logged by rules of their own.
func (f *findings) actionsOnce(ctx context.Context, t *Target, steps []lifecycle.InstanceStep) {
	rows, err := instancedb.ListActions(ctx, t.Store, t.instance, "", mostActions)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return
	}
	for _, step := range steps {
		n := 0
		for _, r := range rows {
			n += one(r.ActionType == step.ActionType && r.Status == lifecycle.ActionSuccess)
		}
		if step.ActionType != "" && step.ActionType != lifecycle.ActHealthCheck {
			f.exactly("successes of "+step.ActionType+" in the action log", 1, n)
		}
	}
}

const mostActions = 200
