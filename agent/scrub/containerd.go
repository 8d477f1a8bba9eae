package scrub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/toolrunner"
)

// containerd is one that may be there, for whomever it was installed: the socket
// that it answers at and the directories where it keeps what it holds. The one
// that Docker starts for itself, below Docker's own directories, is none.
type containerd struct {
	socket string
	dirs   []string
}

func containerds() []containerd {
	return []containerd{
		{"/run/containerd/containerd.sock", []string{"/var/lib/containerd"}},
		{"/run/k3s/containerd/containerd.sock", []string{"/var/lib/rancher/k3s/agent/containerd", "/var/lib/rancher/rke2/agent/containerd"}},
		{"/var/snap/microk8s/common/run/containerd.sock", []string{"/var/snap/microk8s/common/var/lib/containerd"}},
	}
}

// containerdDirs are where the containerd at a socket keeps what it holds.
func containerdDirs(socket string) []string {
	for _, c := range containerds() {
		if c.socket == socket {
			return c.dirs
		}
	}
	return nil
}

// dockerSpace is the namespace of Docker, which removes by itself what is in it.
const dockerSpace = "moby"

// held is something that containerd holds.
type held struct {
	space, kind, id string
	snapshotter     string // of a snapshot
}

func (h held) String() string { return h.kind + " " + h.space + "/" + h.id }

// The kinds in the order in which they can be removed: a container not before its
// task, a snapshot not before what is made of it.
var heldKinds = [...]string{"tasks", "containers", "images", "snapshots"}

// ctr asks the containerd at a socket.
func (r *run) ctr(ctx context.Context, socket string, args ...string) ([]byte, error) {
	return r.run(ctx, 5*time.Minute, "ctr", append([]string{"--address", socket}, args...)...)
}

// allHeld lists what a containerd holds in all namespaces; Docker's is left out
// where Docker answers for it.
func (r *run) allHeld(ctx context.Context, socket string, docker bool) ([]held, error) {
	spaces, err := r.ctr(ctx, socket, "namespaces", "list", "--quiet")
	if err != nil {
		return nil, fmt.Errorf("what it holds is unknown: %w", err)
	}
	var out []held
	var snapshotters []string
	for _, space := range strings.Fields(string(spaces)) {
		if space == dockerSpace && docker {
			continue
		}
		if snapshotters == nil {
			raw, err := r.ctr(ctx, socket, "plugins", "list")
			if err != nil {
				return nil, err
			}
			if snapshotters, err = parseSnapshotters(raw); err != nil {
				return nil, err
			}
		}
		some, err := r.heldIn(ctx, socket, space, snapshotters)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func (r *run) heldIn(ctx context.Context, socket, space string, snapshotters []string) ([]held, error) {
	var out []held
	add := func(kind, snapshotter string, ids []string) {
		for _, id := range ids {
			if r.concerns("container", id) {
				out = append(out, held{space, kind, id, snapshotter})
			}
		}
	}
	for _, kind := range heldKinds[:3] {
		raw, err := r.ctr(ctx, socket, "--namespace", space, kind, "list", "--quiet")
		if err != nil {
			return nil, err
		}
		add(kind, "", strings.Fields(string(raw)))
	}
	for _, s := range snapshotters {
		raw, err := r.ctr(ctx, socket, "--namespace", space, "snapshots", "--snapshotter", s, "list")
		if err != nil {
			return nil, err
		}
		keys, err := parseSnapshots(raw)
		if err != nil {
			return nil, err
		}
		add("snapshots", s, keys)
	}
	return out, nil
}

// parseSnapshotters reads `ctr plugins list`: type, id, platforms, status. Those
// that could not be loaded hold nothing that could be listed.
func parseSnapshotters(raw []byte) ([]string, error) {
	var out []string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 3 && strings.HasPrefix(f[0], "io.containerd.snapshotter.") && f[len(f)-1] == "ok" {
			out = append(out, f[1])
		}
	}
	if len(out) == 0 {
		return nil, errors.New("ctr plugins list tells no snapshotter that works, so what is in containerd's snapshots is unknown")
	}
	return out, nil
}

// parseSnapshots reads `ctr snapshots list`, which has no quiet form: a heading,
// then key, parent (which the first of a row lacks) and kind.
func parseSnapshots(raw []byte) ([]string, error) {
	var out []string
	heading := false
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case !heading && f[0] == "KEY":
			heading = true
		case !heading || len(f) < 2:
			return nil, errors.New("ctr snapshots list wrote something that cannot be read")
		default:
			out = append(out, f[0])
		}
	}
	if !heading {
		return nil, errors.New("ctr snapshots list wrote nothing, so containerd's snapshots are unknown")
	}
	return out, nil
}

// emptyContainerd removes all that a containerd holds, and counts the containers.
func (r *run) emptyContainerd(ctx context.Context, socket string, docker bool) (int, error) {
	all, err := r.allHeld(ctx, socket, docker)
	if err != nil {
		return 0, err
	}
	count := 0
	var last error
	for _, kind := range heldKinds {
		for _, h := range all {
			if h.kind != kind || kind == "snapshots" {
				continue
			}
			if kind == "containers" {
				count++
			}
			if err := r.letGo(ctx, socket, h); err != nil {
				last = err // what is there afterwards counts
			}
		}
	}
	left, err := r.allHeld(ctx, socket, docker)
	// A snapshot goes once nothing is made of it: each round takes a layer, until
	// one takes nothing.
	for before := len(left) + 1; err == nil && len(left) > 0 && len(left) < before; {
		before = len(left)
		for _, h := range left {
			if h.kind != "snapshots" {
				continue
			}
			if err := r.letGo(ctx, socket, h); err != nil {
				last = err
			}
		}
		left, err = r.allHeld(ctx, socket, docker)
	}
	if err == nil && len(left) > 0 {
		err = errors.Join(fmt.Errorf("containerd still holds %d: %s", len(left), list(heldNames(left))), last)
	}
	return count, err
}

func (r *run) letGo(ctx context.Context, socket string, h held) error {
	how := map[string][]string{
		"tasks":      {"tasks", "delete", "--force"},
		"containers": {"containers", "delete"},
		"images":     {"images", "remove", "--sync"}, // which also drops what no image needs any more
		"snapshots":  {"snapshots", "--snapshotter", h.snapshotter, "delete"},
	}[h.kind]
	_, err := r.ctr(ctx, socket, slices.Concat([]string{"--namespace", h.space}, how, []string{h.id})...)
	return err
}

func heldNames(all []held) []string {
	out := make([]string, 0, len(all))
	for _, h := range all {
		out = append(out, h.String())
	}
	return out
}

// eachContainerd does something with each containerd that is there: served with
// one that answers at its socket, idle with what one left that does not run, also
// not some time after the boot. crictl says that crictl is there. It sees what
// Kubernetes made and ctr sees all; where neither is, nobody knows what it is.
func (r *run) eachContainerd(ctx context.Context, crictl bool, served func(socket string) error, idle func(dir string) error) (found int, err error) {
	var errs []error
	for _, c := range containerds() {
		dirs := slices.DeleteFunc(c.dirs, func(dir string) bool { return len(r.names(dir)) == 0 })
		if len(dirs) == 0 && !r.exists(c.socket) {
			continue
		}
		found++
		for late := time.Now().Add(r.Patience); !r.exists(c.socket) && time.Now().Before(late); {
			if err := r.wait(ctx, min(r.Poll, time.Second)); err != nil {
				return found, err
			}
		}
		if !r.exists(c.socket) {
			for _, dir := range dirs {
				errs = append(errs, idle(dir))
			}
			continue
		}
		err := served(c.socket)
		switch {
		case errors.Is(err, toolrunner.ErrNotInstalled) && crictl:
		case errors.Is(err, toolrunner.ErrNotInstalled):
			errs = append(errs, fmt.Errorf("containerd is there (%s) and neither ctr nor crictl is, so what it holds is unknown; install one of them, or reimage the node", c.socket))
		case err != nil:
			errs = append(errs, fmt.Errorf("containerd (%s): %w", c.socket, err))
		}
	}
	return found, errors.Join(errs...)
}

// emptyIdle removes what a containerd left that does not run.
func (r *run) emptyIdle(ctx context.Context, dir string) (int, error) {
	t, err := r.openTree()
	if err != nil {
		return 0, err
	}
	defer t.close()
	return t.empty(ctx, dir)
}
