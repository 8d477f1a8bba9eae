package scrub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	// layersLimit is how long taking all layers apart may take; layerLimit is how long one may.
	layersLimit = 15 * time.Minute
	layerLimit  = time.Minute
	// swapLimit is how long it may take to read a swap area back into memory.
	swapLimit = 5 * time.Minute
	// comebacks is how often a layer may come back: the system puts one together again that it
	// finds.
	comebacks = 3
)

// takeApart takes apart what a tenant has put over the drives of this node: swap, ZFS pools, and
// then RAID, device mapper (LVM, LUKS, multipath) and bcache, from the top down. It addresses
// layers by the kernel's names and numbers only, since a tenant gives them all other names. A layer
// over anything but drives that this task erases stays as it is.
func (r *run) takeApart(ctx context.Context) (string, error) {
	system, err := r.systemNow()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, layersLimit)
	defer cancel()
	l := layers{run: r, system: system, done: map[string]int{}}
	errs := []error{l.swapsOff(ctx), l.exportPools(ctx)}
	stopped, err := l.stopAll(ctx)
	errs = append(errs, err, l.stopCaches(ctx))
	detail := "no layer over the drives of this node"
	if stopped > 0 {
		detail = fmt.Sprintf("%d layers taken apart", stopped)
	}
	return detail, errors.Join(errs...)
}

func (h Host) systemNow() (map[string]bool, error) {
	mounts, err := h.mountList()
	if err != nil {
		return nil, err
	}
	return h.systemDisks(mounts)
}

type layers struct {
	*run
	system map[string]bool
	done   map[string]int // how often each was stopped
}

// ours reports whether a whole device is a drive that this task erases.
func (l layers) ours(name string) bool {
	d := l.driveAt(l.blocks().Classify(name))
	return l.AllowWipe && d.place.Class == blockdev.Local && !l.system[name] && !l.protected(d) && l.refusal(d) == nil && l.concerns("disk", name) &&
		(len(l.expected) == 0 || slices.ContainsFunc(l.expected, func(e spec.ExpectedDrive) bool { return l.difference(e, d) == "" }))
}

// base returns the devices on which a layer lies in the end, through whatever lies between.
func (l layers) base(name string) []string {
	var out []string
	seen := map[string]bool{}
	for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if seen[at] {
			continue
		}
		seen[at] = true
		below := l.names(blockClass, at, "slaves")
		for _, b := range below {
			queue = append(queue, l.blocks().Whole(b))
		}
		if len(below) == 0 {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}

// over reports whether a layer lies over drives that this task erases. It returns an error when it
// lies over anything else too.
func (l layers) over(base []string) (ours bool, err error) {
	var others []string
	for _, b := range base {
		switch {
		case l.ours(b):
			ours = true
		case !l.inMemory(b):
			others = append(others, b)
		}
	}
	if ours && len(others) > 0 {
		return false, fmt.Errorf("lies over drives of this node and over %s, which this task does not erase", list(others))
	}
	return ours, nil
}

// inMemory reports whether a device has no medium but the node's memory, or a file on its own
// storage.
func (l layers) inMemory(name string) bool {
	if l.blocks().Classify(name).Class != blockdev.Layer {
		return false
	}
	file := l.text(blockClass, name, "loop/backing_file")
	return !strings.HasPrefix(name, "loop") || file != "" && !strings.HasPrefix(file, "/dev/") && l.storageGuard(file) == nil
}

// tops lists the layers over this task's drives on which nothing else lies.
func (l layers) tops() ([]string, error) {
	var out []string
	var errs []error
	for _, name := range l.names(blockClass) {
		if len(l.names(blockClass, name, "slaves")) == 0 || len(l.holdersOf(name)) > 0 {
			continue
		}
		ours, err := l.over(l.base(name))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s stays: it %w", l.label(name), err))
		}
		if ours {
			out = append(out, name)
		}
	}
	return out, errors.Join(errs...)
}

// holdersOf lists what lies over a device or one of its partitions.
func (h Host) holdersOf(name string) []string {
	out := h.names(blockClass, name, "holders")
	for _, p := range h.parts(name)[1:] {
		out = append(out, h.names(blockClass, name, p, "holders")...)
	}
	return out
}

// label is what people know a layer by. A tenant chose that name.
func (h Host) label(name string) string {
	if dm := h.text(blockClass, name, "dm/name"); dm != "" {
		return fmt.Sprintf("%s (%.80q)", name, dm)
	}
	return name
}

// stopAll stops layers in rounds, each time those at the top, until a round ends none. It returns
// how many it stopped. Failures of an earlier round do not count: another layer may have been in
// the way.
func (l layers) stopAll(ctx context.Context) (int, error) {
	for stopped := 0; ; {
		tops, refused := l.tops()
		errs := []error{refused}
		before := stopped
		for _, name := range tops {
			if ctx.Err() != nil {
				return stopped, errors.Join(append(errs, fmt.Errorf("%d layers were taken apart and the next is %s: %w", stopped, l.label(name), context.Cause(ctx)))...)
			}
			if err := l.stop(ctx, name); err != nil {
				errs = append(errs, fmt.Errorf("%s stays: %w", l.label(name), err))
				continue
			}
			l.done[name]++
			stopped++
		}
		if stopped == before {
			return stopped, errors.Join(errs...)
		}
	}
}

var raidName = regexp.MustCompile(`^md(_|\d)`)

// stop stops one layer after a last look at what lies below it, and looks whether it is gone.
func (l layers) stop(ctx context.Context, name string) error {
	base := l.base(name)
	if ours, err := l.over(base); err != nil || !ours {
		return cmp.Or(err, errors.New("what lies below it has changed"))
	}
	if l.done[name] > comebacks {
		return fmt.Errorf("it came back %d times: the system puts it together again", comebacks)
	}
	if err := l.idle(name); err != nil {
		return err
	}
	ctx = toolrunner.Permit(ctx, toolrunner.GuardLayer)
	var err error
	switch {
	case l.exists(blockClass, name, "dm"):
		err = l.removeMapping(ctx, name)
	case raidName.MatchString(name):
		err = l.stopRAID(ctx, name)
	case l.exists(blockClass, name, "bcache/stop"):
		err = l.tell(ctx, filepath.Join(blockClass, name, "bcache/stop"), "1")
	default:
		return errors.New("it is of a kind that the scrub cannot take apart")
	}
	if err != nil {
		return err
	}
	for late := time.Now().Add(min(l.Patience, layerLimit)); len(l.names(blockClass, name, "slaves")) > 0; {
		if time.Now().After(late) {
			return errors.New("it was told to stop and is still there")
		}
		if err := l.wait(ctx, l.Poll); err != nil {
			return err
		}
	}
	return nil
}

// idle returns an error for a layer that is mounted or swap.
func (l layers) idle(name string) error {
	mounts, err := l.mountList()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if dev, ok := l.deviceOf(m); ok && l.wholeDevice(dev) == name {
			return fmt.Errorf("it is mounted at %s", m.Target)
		}
	}
	swaps, err := l.swaps()
	if slices.ContainsFunc(swaps, func(s swap) bool { return l.wholeDevice(s.device) == name }) {
		err = errors.New("it holds swap")
	}
	return err
}

// removeMapping removes a mapping of the device mapper by its number.
func (l layers) removeMapping(ctx context.Context, name string) error {
	major, minor, ok := strings.Cut(l.text(blockClass, name, "dev"), ":")
	if !ok {
		return errors.New("its device number cannot be read")
	}
	if strings.HasPrefix(l.text(blockClass, name, "dm/uuid"), "mpath-") { // without a path left it would wait for ever
		_, _ = l.run.run(ctx, layerLimit, "dmsetup", "message", "-j", major, "-m", minor, "0", "fail_if_no_path")
	}
	_, err := l.run.run(ctx, layerLimit, "dmsetup", "remove", "-j", major, "-m", minor)
	return err
}

// stopRAID stops an md array, also one that is being rebuilt: with mdadm, and where that is not
// installed through the kernel.
func (l layers) stopRAID(ctx context.Context, name string) error {
	if action := filepath.Join(blockClass, name, "md/sync_action"); l.exists(action) && l.text(action) != "idle" {
		_ = l.tell(ctx, action, "frozen") // what counts is that it stops
	}
	if err := l.rightFile(name, func() (os.FileInfo, error) { return os.Stat(l.path("/dev", name)) }); err == nil {
		if _, err = l.run.run(ctx, layerLimit, "mdadm", "--stop", "/dev/"+name); !errors.Is(err, toolrunner.ErrNotInstalled) {
			return err
		}
	}
	return l.tell(ctx, filepath.Join(blockClass, name, "md/array_state"), "clear")
}

// tell writes a word to a file of sysfs that the kernel takes for an order. It gives up in time: a
// device that hangs keeps the writer. Below a made-up root the recorded program kernel does what
// the kernel would.
func (h Host) tell(ctx context.Context, file, word string) error {
	ctx, cancel := context.WithTimeout(ctx, layerLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(h.path(file), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(word)
			err = errors.Join(err, f.Close())
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("tell the kernel %s: %w", word, err)
		}
	case <-ctx.Done():
		return fmt.Errorf("the kernel does not take %s for %s: %w", word, file, context.Cause(ctx))
	}
	if h.Root != "/" && h.simulated() {
		_, err := h.run(ctx, layerLimit, "kernel", file, word)
		return err
	}
	return nil
}

// swap is an area that is in use. device is the kernel's name of its device, "" for a file.
type swap struct{ path, device string }

func (h Host) swaps() ([]swap, error) {
	raw, err := h.read("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without swap
	}
	if err != nil {
		return nil, fmt.Errorf("read the swap areas: %w", err)
	}
	var out []swap
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == "Filename" {
			continue
		}
		s := swap{path: hostscan.Unescape(f[0])}
		if st, err := os.Stat(h.path(s.path)); err == nil {
			s.device = h.blocks().ByNumber(number(st))
		}
		if dev, ok := strings.CutPrefix(s.path, "/dev/"); ok && s.device == "" {
			s.device = dev
		}
		out = append(out, s)
	}
	return out, nil
}

// swapsOff ends swap on drives that this task erases.
func (l layers) swapsOff(ctx context.Context) error {
	all, err := l.swaps()
	errs := []error{err}
	for _, s := range all {
		whole := l.wholeDevice(s.device)
		if s.device == "" || whole == "" {
			continue
		}
		ours, err := l.over(l.base(whole))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the swap area %s stays: it %w", s.path, err))
		case ours:
			errs = append(errs, l.swapOff(ctx, s))
		}
	}
	return errors.Join(errs...)
}

func (r *run) swapOff(ctx context.Context, s swap) error {
	if _, err := r.run(ctx, swapLimit, "swapoff", "--", s.path); err != nil {
		return fmt.Errorf("the swap area %s stays: %w", s.path, err)
	}
	return nil
}

// swapFilesOff ends swap in files on mounts that are about to end.
func (r *run) swapFilesOff(ctx context.Context, mounts []hostscan.Mount) error {
	all, err := r.swaps()
	errs := []error{err}
	for _, s := range all {
		if s.device == "" && slices.ContainsFunc(mounts, func(m hostscan.Mount) bool { return strings.HasPrefix(s.path, m.Target+"/") }) {
			errs = append(errs, r.swapOff(ctx, s))
		}
	}
	return errors.Join(errs...)
}

const poolClass = "/proc/spl/kstat/zfs"

var poolName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.: -]*$`)

// exportPools exports the ZFS pools of which all devices are drives that this task erases.
func (l layers) exportPools(ctx context.Context) error {
	var errs []error
	for _, pool := range l.names(poolClass) {
		if st, err := os.Stat(l.path(poolClass, pool)); err != nil || !st.IsDir() || !poolName.MatchString(pool) {
			continue
		}
		if err := l.exportPool(ctx, pool); err != nil {
			errs = append(errs, fmt.Errorf("the ZFS pool %q stays: %w", pool, err))
		}
	}
	return errors.Join(errs...)
}

func (l layers) exportPool(ctx context.Context, pool string) error {
	raw, err := l.run.run(ctx, layerLimit, "zpool", "list", "-H", "-v", "-P", "-L", "--", pool)
	if err != nil {
		return err
	}
	var base []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "/") {
			continue
		}
		whole := l.wholeDevice(strings.TrimPrefix(f[0], "/dev/"))
		if !strings.HasPrefix(f[0], "/dev/") || whole == "" {
			base = append(base, f[0])
			continue
		}
		base = append(base, l.base(whole)...)
	}
	if ours, err := l.over(base); err != nil {
		return fmt.Errorf("it %w", err)
	} else if !ours {
		return nil
	}
	_, err = l.run.run(toolrunner.Permit(ctx, toolrunner.GuardLayer), swapLimit, "zpool", "export", "-f", "--", pool)
	return err
}

// stopCaches stops what bcache keeps of a drive that no cached device lies over: the kernel shows
// no holder for it.
func (l layers) stopCaches(ctx context.Context) error {
	var errs []error
	for _, name := range l.names(blockClass) {
		if !l.ours(name) {
			continue
		}
		for _, p := range l.parts(name) {
			dir := filepath.Join(blockClass, name, "bcache")
			if p != name {
				dir = filepath.Join(blockClass, name, p, "bcache")
			}
			if err := l.stopCache(ctx, dir); err != nil {
				errs = append(errs, fmt.Errorf("the bcache of %s stays: %w", p, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (l layers) stopCache(ctx context.Context, dir string) error {
	set := filepath.Join(dir, "set")
	if !l.exists(set) {
		if !l.exists(dir, "stop") {
			return nil
		}
		return l.tell(ctx, filepath.Join(dir, "stop"), "1")
	}
	var base []string
	for _, member := range l.names(set) { // bdev0 and cache0 lead to DEVICE/bcache
		if !strings.HasPrefix(member, "bdev") && !strings.HasPrefix(member, "cache") {
			continue
		}
		if at, err := filepath.EvalSymlinks(l.path(set, member)); err == nil && filepath.Base(at) == "bcache" {
			base = append(base, l.base(l.blocks().Whole(filepath.Base(filepath.Dir(at))))...)
		}
	}
	if _, err := l.over(base); err != nil {
		return fmt.Errorf("it %w", err)
	}
	return l.tell(ctx, filepath.Join(set, "stop"), "1")
}
