package scrub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// eraseDisks erases the disks, all at the same time: a drive takes minutes to
// hours and needs nobody. Namespaces of one NVMe controller go together. Which
// disks are erased, and each by which method, is decided before anything is
// written to any of them.
func (r *run) eraseDisks(ctx context.Context) (string, error) {
	all, err := r.drives()
	if err != nil {
		return "", err
	}
	mounts, err := r.mountList()
	if err != nil {
		return "", err
	}
	system, sysErr := r.systemDisks(mounts)
	missing, err := r.refuseAll(all, system)
	if err != nil {
		return "", err
	}
	errs := r.missing(missing)
	excepted, err := r.exceptions()
	work, refused := r.choose(all, system, sysErr)
	errs = append(append(errs, refused...), err)
	plans := inParallel(groups(work), func(g []drive) (plan, error) { return r.plan(ctx, g, all) })
	for _, p := range plans {
		errs = append(errs, p.err)
	}
	plans = slices.DeleteFunc(plans, func(p outcome[plan]) bool { return p.err != nil || p.value.method.do == nil })
	for _, e := range inParallel(plans, func(p outcome[plan]) (struct{}, error) { return struct{}{}, r.eraseGroup(ctx, p.value) }) {
		errs = append(errs, e.err)
	}
	if err := errors.Join(errs[len(missing):]...); err == nil && len(missing) > 0 {
		r.code = lifecycle.TaskCodeDriveMissing
	}
	if len(all) == 0 && errors.Join(errs...) == nil {
		return excepted, skipped("this machine has no disk")
	}
	return fmt.Sprintf("%d disks, %d to erase%s", len(all), len(work), excepted), errors.Join(errs...)
}

// outcome is what one of several parallel calls returned.
type outcome[T any] struct {
	value T
	err   error
}

// inParallel calls do for each of in at the same time, and returns what they return in the order of
// in.
func inParallel[I, O any](in []I, do func(I) (O, error)) []outcome[O] {
	out := make([]outcome[O], len(in))
	var wg sync.WaitGroup
	for i := range in {
		wg.Go(func() { out[i].value, out[i].err = do(in[i]) })
	}
	wg.Wait()
	return out
}

// refuseAll returns an error when no disk may be touched at all: storage of another machine is
// there, or a drive that the task does not expect. Each disk is then reported as not erased. It
// also returns the expected drives that are not there.
func (r *run) refuseAll(all []drive, system map[string]bool) ([]spec.ExpectedDrive, error) {
	missing, err := r.compare(all)
	errs := []error{err}
	left, err := r.connections()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("storage of other machines is still connected: %s", connectionNames(left))
	}
	errs = append(errs, err)
	foreign := map[string]error{}
	for _, d := range all {
		if r.protected(d) && d.place.Exception != "" {
			continue
		}
		if err := r.foreign(d, system); err != nil {
			foreign[d.name] = err
			errs = append(errs, err)
		}
	}
	err = errors.Join(errs...)
	if err == nil {
		return missing, nil
	}
	for _, d := range all {
		_ = r.untouched(d, cmp.Or(foreign[d.name], fmt.Errorf("nothing is erased: %w", err)))
	}
	return missing, errors.Join(append(r.missing(missing), err)...)
}

// choose returns the disks to erase, and why others that should be are not.
func (r *run) choose(all []drive, system map[string]bool, sysErr error) (work []drive, errs []error) {
	for _, d := range all {
		switch {
		case sysErr != nil:
			errs = append(errs, r.untouched(d, sysErr))
		case system[d.name]:
			r.out.BootDisks = append(r.out.BootDisks, d.serial)
			_ = r.untouched(d, errors.New("the agent runs from it, so it is not erased; only installing it again replaces what is on it"))
		case r.protected(d):
			r.out.Protected = append(r.out.Protected, d.serial)
			_ = r.untouched(d, errors.New("the task protects it, so it is not erased"))
		case !r.AllowWipe:
			errs = append(errs, r.untouched(d, fmt.Errorf("%s: the agent was not allowed to erase disks in this run", d.name)))
		default:
			if err := r.refusal(d); err != nil {
				errs = append(errs, r.untouched(d, err))
				continue
			}
			work = append(work, d)
		}
	}
	work, twice := distinct(work)
	for _, d := range twice {
		errs = append(errs, r.untouched(d, fmt.Errorf("%s has the serial number %s of another disk", d.name, d.serial)))
	}
	return work, errs
}

// untouched reports a disk that was not erased and returns why.
func (r *run) untouched(d drive, why error) error {
	r.device(lifecycle.DeviceResult{Kind: "disk", Name: d.name, Serial: d.serial, Model: d.model, Method: lifecycle.SanitizeNone, Detail: why.Error()})
	return why
}

// groups puts the namespaces of one NVMe drive together, by its serial.
func groups(work []drive) [][]drive {
	var out [][]drive
	for _, d := range work {
		i := slices.IndexFunc(out, func(g []drive) bool { return g[0].nvme() && d.nvme() && g[0].serial == d.serial })
		if i < 0 {
			out = append(out, []drive{d})
		} else {
			out[i] = append(out[i], d)
		}
	}
	return out
}

// distinct takes out disks, but NVMe namespaces, that share a serial number:
// notes and certificates could not tell them apart.
func distinct(work []drive) (keep, twice []drive) {
	count := map[string]int{}
	for _, d := range work {
		if !d.nvme() {
			count[d.serial]++
		}
	}
	for _, d := range work {
		if count[d.serial] > 1 {
			twice = append(twice, d)
		} else {
			keep = append(keep, d)
		}
	}
	return keep, twice
}

// plan is what will be done to disks that go together. A plan without a method is done already.
type plan struct {
	group  []drive
	method method
}

// method is how disks are erased. It is decided by reading only.
type method struct {
	erasure
	// wait waits for an operation of someone else that the drive works on; nil when there is none.
	wait func(context.Context) error
	do   func(context.Context) error
}

// plan decides how disks that go together are erased. Disks that the notes call erased are checked,
// and erased again only when the disk does not bear it out: a note is never believed over the disk.
func (r *run) plan(ctx context.Context, g, all []drive) (plan, error) {
	key := g[0].serial
	err := r.free(g)
	if was := r.notes.get(key); err == nil && was.Done {
		devs, bad := r.verifyGroup(ctx, g, erasure{was.Method, was.Tool}, false)
		if bad == nil || ctx.Err() != nil {
			return plan{}, r.devicesOf(devs, bad)
		}
		err = r.notes.forget(key)
	}
	p := plan{group: g}
	if err == nil {
		p.method, err = r.decide(ctx, g, all)
	}
	if err != nil {
		return plan{}, r.noneErased(g, err)
	}
	return p, nil
}

// noneErased reports disks of which what was begun was not finished, which is no method.
func (r *run) noneErased(g []drive, err error) error {
	for _, d := range g {
		_ = r.untouched(d, err)
	}
	return err
}

// decide chooses the method for disks that go together. It writes nothing.
func (r *run) decide(ctx context.Context, g, all []drive) (method, error) {
	var m method
	var err error
	switch was := r.notes.get(g[0].serial); {
	case g[0].nvme():
		m, err = r.decideNVMe(ctx, g, all, was)
	case g[0].ata() && !r.scsi(g[0]):
		m, err = r.decideATA(ctx, g[0], was)
	default:
		err = errNoPurge
	}
	if !errors.Is(err, errNoPurge) {
		return m, err
	}
	if !r.overwrite {
		return method{}, fmt.Errorf("%s: %w, and the task does not allow to overwrite it", g[0].name, err)
	}
	m = method{erasure: erasure{lifecycle.SanitizeClear, "blkdiscard --zeroout, " + r.version(ctx, "blkdiscard", "--version")}}
	m.do = func(ctx context.Context) error { return r.zeroOut(ctx, g) }
	return m, nil
}

// eraseGroup carries a plan out and reports each disk.
func (r *run) eraseGroup(ctx context.Context, p plan) error {
	key := p.group[0].serial
	var told *exitError
	if err := r.erase(ctx, p); err != nil && (!errors.As(err, &told) || ctx.Err() != nil) {
		return r.noneErased(p.group, err)
	}
	devs, bad := r.verifyGroup(ctx, p.group, p.method.erasure, true)
	if told != nil {
		for i := range devs {
			devs[i].Detail += "; the program said otherwise: " + told.Error()
		}
		if bad != nil {
			bad = errors.Join(bad, told)
			for i := range devs { // nobody says that it was done
				devs[i].Method, devs[i].Tool = lifecycle.SanitizeNone, ""
			}
		}
	}
	if bad != nil && ctx.Err() == nil { // the drive's word was not true: who asks again has it erased again
		bad = errors.Join(bad, r.notes.forget(key))
	}
	return r.devicesOf(devs, bad)
}

// erase plants the canaries and erases, or goes on with what the notes say was
// begun.
func (r *run) erase(ctx context.Context, p plan) error {
	if p.method.wait != nil {
		if err := p.method.wait(ctx); err != nil {
			return err
		}
	}
	if !r.notes.get(p.group[0].serial).Begun {
		if err := r.plantAll(p.group); err != nil {
			return err
		}
	}
	err := p.method.do(ctx)
	var told *exitError
	if err != nil && !errors.As(err, &told) {
		return err
	}
	return cmp.Or(err, r.notes.put(p.group[0].serial, note{Begun: true, Done: true, Method: p.method.Method, Tool: p.method.Tool}))
}

// exitError is what the program of a drive's own erasure said when it failed. Such programs also
// fail after the drive has done its work, so what is on the drive decides.
type exitError struct{ error }

func (e *exitError) Unwrap() error { return e.error }

// plantAll writes the canaries to disks that are about to be erased.
func (r *run) plantAll(g []drive) error {
	for _, d := range g {
		if err := r.guard(d); err != nil {
			return err
		}
		if err := r.plant(d.name, r.runID, d.serial, d.bytes); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) devicesOf(devs []lifecycle.DeviceResult, err error) error {
	for _, d := range devs {
		r.device(d)
	}
	return err
}

// verifyGroup looks at erased disks and says of each whether it is blank. Noise is deallocated only
// when that is allowed.
func (r *run) verifyGroup(ctx context.Context, g []drive, e erasure, deallocate bool) ([]lifecycle.DeviceResult, error) {
	var errs []error
	devs := make([]lifecycle.DeviceResult, 0, len(g))
	for _, d := range g {
		dev := lifecycle.DeviceResult{Kind: "disk", Name: d.name, Serial: d.serial, Model: d.model, Method: e.Method, Tool: e.Tool}
		seen, err := r.verify(ctx, d, &dev, deallocate)
		if err != nil {
			dev.Detail = err.Error()
			errs = append(errs, err)
		} else {
			dev.Verified = true
			dev.Detail = fmt.Sprintf("%d sampled blocks are blank and none holds what was written before", seen.blocks)
		}
		devs = append(devs, dev)
	}
	return devs, errors.Join(errs...)
}

// verify samples an erased disk. A cryptographic erasure leaves noise; the disk
// is then deallocated so that it can be seen to be blank.
func (r *run) verify(ctx context.Context, d drive, dev *lifecycle.DeviceResult, deallocate bool) (look, error) {
	seen, err := r.sample(d.name, r.runID, d.serial, d.bytes)
	if err != nil {
		return seen, err
	}
	if deallocate && seen.canaries == 0 && seen.full > 0 && dev.Method == lifecycle.SanitizePurge && strings.Contains(dev.Tool, "crypto") {
		permitted, err := r.permit(ctx, []drive{d})
		if err != nil {
			return seen, err
		}
		if _, err := r.run(permitted, time.Hour, "blkdiscard", "-f", "/dev/"+d.name); err != nil {
			return seen, fmt.Errorf("%s holds noise after the cryptographic erasure and cannot be deallocated: %w", d.name, err)
		}
		if seen, err = r.sample(d.name, r.runID, d.serial, d.bytes); err != nil {
			return seen, err
		}
	}
	return seen, seen.err(d.name)
}

// guard is the last look before anything is written to a disk.
func (r *run) guard(d drive) error {
	if !r.AllowWipe {
		return errors.New("the agent was not allowed to erase disks in this run")
	}
	if place := r.blocks().Classify(d.name); place.Class != blockdev.Local {
		return fmt.Errorf("%s is not this node's: %s", d.name, place.Reason)
	}
	if err := r.rightFile(d.name, func() (os.FileInfo, error) { return os.Stat(r.path("/dev", d.name)) }); err != nil {
		return err
	}
	if now := r.diskSerial(d.name); now != d.serial {
		return fmt.Errorf("%s was %s and is now %q", d.name, d.serial, now)
	}
	if r.protected(d) {
		return fmt.Errorf("%s is protected", d.name)
	}
	if err := r.refusal(d); err != nil {
		return err
	}
	return r.inUse(d)
}

// erasure is how something was erased.
type erasure struct {
	Method lifecycle.SanitizeMethod
	Tool   string
}

// free looks a last time whether anything forbids to erase these disks, and has
// the kernel say so too.
func (r *run) free(g []drive) error {
	for _, d := range g {
		if err := r.guard(d); err != nil {
			return err
		}
		// The kernel itself refuses a second user.
		f, err := r.openDisk(d.name, d.bytes, false)
		if err != nil {
			return err
		}
		if err := f.close(); err != nil {
			return err
		}
	}
	return nil
}

// begin notes that a drive is about to be told to erase, and looks a last time. Only with the
// context that it returns do the commands run that erase the drive.
func (r *run) begin(ctx context.Context, g []drive, targets ...string) (context.Context, error) {
	ctx, err := r.permit(ctx, g, targets...)
	if err != nil {
		return nil, err
	}
	return ctx, r.notes.put(g[0].serial, note{Begun: true})
}

// permit returns a context with which commands that destroy data on these disks run, after a last
// look at each of them. targets are further names of them.
func (r *run) permit(ctx context.Context, g []drive, targets ...string) (context.Context, error) {
	for _, d := range g {
		if err := r.guard(d); err != nil {
			return nil, err
		}
		targets = append(targets, "/dev/"+d.name)
	}
	return toolrunner.Permit(ctx, toolrunner.GuardDrive, targets...), nil
}

// errNoPurge says that a disk has no command to purge it.
var errNoPurge = errors.New("it has no command that purges it")

// zeroOut overwrites disks that cannot be purged.
func (r *run) zeroOut(ctx context.Context, g []drive) error {
	ctx, err := r.begin(ctx, g)
	if err != nil {
		return err
	}
	for _, d := range g {
		if _, err := r.run(ctx, 48*time.Hour, "blkdiscard", "-f", "--zeroout", "/dev/"+d.name); err != nil {
			return fmt.Errorf("%s cannot be overwritten: %w", d.name, err)
		}
	}
	return nil
}

// version is the first line that a program says of itself.
func (r *run) version(ctx context.Context, name string, args ...string) string {
	out, err := r.run(ctx, 10*time.Second, name, args...)
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || first == "" {
		return "version unknown"
	}
	return task.Clip(first, 80)
}
