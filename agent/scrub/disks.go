package scrub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// eraseDisks erases the disks, all at the same time: a drive takes minutes to
// hours and needs nobody. Namespaces of one NVMe controller go together.
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
	var work []drive
	var errs []error
	for _, d := range all {
		switch {
		case sysErr != nil:
			errs = append(errs, r.untouched(d, sysErr))
		case system[d.name]:
			r.out.BootDisks = append(r.out.BootDisks, d.serial)
			_ = r.untouched(d, errors.New("the agent runs from it, so it is not erased; only installing it anew replaces what is on it"))
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
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, group := range groups(work) {
		wg.Go(func() {
			err := r.eraseGroup(ctx, group, all)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	if len(all) == 0 {
		return "", skipped("this machine has no disk")
	}
	return fmt.Sprintf("%d disks, %d to erase", len(all), len(work)), errors.Join(errs...)
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

// eraseGroup erases what goes together and reports each disk. What the notes say
// was done is looked at, and done again only when the disk does not bear it out:
// a note is never believed over the disk.
func (r *run) eraseGroup(ctx context.Context, g []drive, all []drive) error {
	key := g[0].serial
	e, err := erasure{}, r.free(g)
	if was := r.notes.get(key); err == nil && was.Done {
		e = erasure{was.Method, was.Tool}
		devs, bad := r.verifyGroup(ctx, g, e)
		if bad == nil || ctx.Err() != nil {
			return r.devicesOf(devs, bad)
		}
		err = r.notes.forget(key)
	}
	if err == nil {
		e, err = r.erase(ctx, g, all)
	}
	if err != nil { // what was begun and not finished is no method
		for _, d := range g {
			_ = r.untouched(d, err)
		}
		return err
	}
	devs, bad := r.verifyGroup(ctx, g, e)
	if bad != nil && ctx.Err() == nil { // the drive's word was not true: who asks again has it erased again
		bad = errors.Join(bad, r.notes.forget(key))
	}
	return r.devicesOf(devs, bad)
}

func (r *run) devicesOf(devs []lifecycle.DeviceResult, err error) error {
	for _, d := range devs {
		r.device(d)
	}
	return err
}

// verifyGroup looks at erased disks and says of each whether it is blank.
func (r *run) verifyGroup(ctx context.Context, g []drive, e erasure) ([]lifecycle.DeviceResult, error) {
	var errs []error
	devs := make([]lifecycle.DeviceResult, 0, len(g))
	for _, d := range g {
		dev := lifecycle.DeviceResult{Kind: "disk", Name: d.name, Serial: d.serial, Model: d.model, Method: e.Method, Tool: e.Tool}
		seen, err := r.verify(ctx, d, &dev)
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
func (r *run) verify(ctx context.Context, d drive, dev *lifecycle.DeviceResult) (look, error) {
	seen, err := r.sample(d.name, r.runID, d.serial, d.bytes)
	if err != nil {
		return seen, err
	}
	if seen.canaries == 0 && seen.full > 0 && dev.Method == lifecycle.SanitizePurge && strings.Contains(dev.Tool, "crypto") {
		if err := r.guard(d); err != nil {
			return seen, err
		}
		if _, err := r.run(ctx, time.Hour, "blkdiscard", "-f", "/dev/"+d.name); err != nil {
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

// erase plants the canaries and erases, or goes on with what the notes say was
// begun.
func (r *run) erase(ctx context.Context, g []drive, all []drive) (erasure, error) {
	key := g[0].serial
	was := r.notes.get(key)
	if !was.Begun {
		if err := r.replant(g); err != nil {
			return erasure{}, err
		}
	}
	var e erasure
	var err error
	switch {
	case g[0].nvme():
		e, err = r.eraseNVMe(ctx, g, all, was)
	case g[0].ata() && !r.scsi(g[0]):
		e, err = r.eraseATA(ctx, g[0], was)
	default:
		err = errNoPurge
	}
	if errors.Is(err, errNoPurge) {
		e, err = r.clear(ctx, g, err)
	}
	if err != nil {
		return erasure{}, err
	}
	return e, r.notes.put(key, note{Begun: true, Done: true, Method: e.Method, Tool: e.Tool})
}

// begin notes that a drive is about to be told to erase, and looks a last time.
func (r *run) begin(g []drive) error {
	for _, d := range g {
		if err := r.guard(d); err != nil {
			return err
		}
	}
	return r.notes.put(g[0].serial, note{Begun: true})
}

// errNoPurge says that a disk has no command to purge it.
var errNoPurge = errors.New("it has no command that purges it")

// clear overwrites disks that cannot be purged, where the task allows it.
func (r *run) clear(ctx context.Context, g []drive, why error) (erasure, error) {
	if !r.overwrite {
		return erasure{}, fmt.Errorf("%s: %w, and the task does not allow to overwrite it", g[0].name, why)
	}
	if err := r.begin(g); err != nil {
		return erasure{}, err
	}
	for _, d := range g {
		if _, err := r.run(ctx, 48*time.Hour, "blkdiscard", "-f", "--zeroout", "/dev/"+d.name); err != nil {
			return erasure{}, fmt.Errorf("%s cannot be overwritten: %w", d.name, err)
		}
	}
	return erasure{lifecycle.SanitizeClear, "blkdiscard --zeroout, " + r.version(ctx, "blkdiscard", "--version")}, nil
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
