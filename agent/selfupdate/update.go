package selfupdate

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// DefaultTrial is how long a new version has for its first accepted heartbeat.
const DefaultTrial = time.Minute

// Updater is the handler of agent.update.
type Updater struct {
	Root string
	// Dir is the directory of the installation on the node, with a, b and current.
	Dir string
	// Key is the public half of the offline key; without it no update is taken.
	Key ed25519.PublicKey
	// Version is what runs.
	Version string
	// Trial is how long a new version has; default DefaultTrial.
	Trial time.Duration
	// Ask runs a program and gives the version it says it is; nil is the real thing.
	Ask func(ctx context.Context, program string) (string, error)

	mu sync.Mutex // one at a time reads and writes the trial
}

func (u *Updater) length() time.Duration {
	if u.Trial <= 0 {
		return DefaultTrial
	}
	return u.Trial
}

// Run implements task.Handler: it installs the new version beside the old one,
// moves the link and asks for a restart.
func (u *Updater) Run(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*spec.UpdateArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of an update")
	}
	var m Manifest
	var from, to, fetched string
	for _, s := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"manifest", func(context.Context) (_ string, err error) {
			if from, err = u.current(); err != nil {
				return "", err
			}
			to = map[string]string{"a": "b", "b": "a"}[from]
			m, err = u.open(args.Manifest, args.ManifestSignature, u.highest())
			return fmt.Sprintf("from %s to %s", u.Version, m.Version), err
		}},
		{"fetch", func(ctx context.Context) (_ string, err error) {
			if r.Fetch == nil {
				return "", errors.New("there is nobody to fetch the program")
			}
			fetched, err = r.Fetch(ctx, task.File{URL: args.BinaryURL, SHA256: m.SHA256, Size: m.Size})
			return fmt.Sprintf("%d bytes", m.Size), err
		}},
		{"install", func(context.Context) (string, error) {
			return "in " + filepath.Join(u.Dir, to), u.install(fetched, to, m)
		}},
		{"probe", func(ctx context.Context) (string, error) { return u.probe(ctx, to, m) }},
		{"switch", func(context.Context) (string, error) {
			u.mu.Lock()
			defer u.mu.Unlock()
			err := u.writeTrial(trial{task: r.Task.ID, version: m.Version, previous: from, next: to, outcome: trying, until: time.Now().Add(10 * u.length())})
			if err == nil {
				err = u.point(to)
			}
			return "the next start is " + m.Version, err
		}},
	} {
		if err := steps.Do(ctx, s.name, s.do); err != nil {
			return steps.End(err)
		}
	}
	return task.Restart()
}

// Resume implements task.Resumer: it looks at the trial that the task left.
func (u *Updater) Resume(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	t, err := u.settled(ctx, r.Task.ID)
	switch {
	case err != nil:
		return steps.End(err)
	case t.task != r.Task.ID: // it came to no switch, so nothing is changed
		if r.Expired {
			return task.Fail(task.CodeExpired, "its deadline passed before the new version was installed; the old one runs")
		}
		return u.Run(ctx, r, steps)
	case t.outcome == confirmed:
		steps.Add(lifecycle.StepResult{Name: "trial", OK: true, Detail: "a heartbeat of " + t.version + " was accepted", StartedAt: time.Now().UTC(), EndedAt: time.Now().UTC()})
		out, err := json.Marshal(map[string]string{"version": t.version})
		return lifecycle.TaskResult{OK: err == nil, Output: out}
	case t.outcome == rolledBack && u.Version != t.version:
		steps.Add(lifecycle.StepResult{Name: "trial", Detail: t.detail, StartedAt: time.Now().UTC(), EndedAt: time.Now().UTC()})
		return task.Fail(task.CodeRolledBack, fmt.Sprintf("%s did not prove itself (%s); %s runs again", t.version, t.detail, u.Version))
	}
	// The link was moved, or should have been, and this process is not yet what
	// it names.
	u.mu.Lock()
	defer u.mu.Unlock()
	to := t.next
	if t.outcome == rolledBack {
		to = t.previous
	}
	if err := u.point(to); err != nil {
		return steps.End(err)
	}
	return task.Restart()
}

// settled waits until this process's own trial has an outcome.
func (u *Updater) settled(ctx context.Context, id string) (trial, error) {
	tick := time.NewTicker(max(u.length()/100, 5*time.Millisecond))
	defer tick.Stop()
	for {
		u.mu.Lock()
		t, err := u.readTrial()
		u.mu.Unlock()
		if err != nil || t.task != id || t.outcome != trying || t.version != u.Version {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, task.ErrHalted
		case <-tick.C:
		}
	}
}

// Healthy ends a trial well: a heartbeat of this version was accepted.
func (u *Updater) Healthy(version string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	t, err := u.readTrial()
	if err != nil || t.outcome != trying || t.version != version || version != u.Version {
		return err
	}
	if err := atomicfile.Replace(u.path(highestFile), []byte(version+"\n"), 0o644); err != nil {
		return err
	}
	t.outcome = confirmed
	return u.writeTrial(t)
}

// Watch is run beside everything else from the start of a process: when this
// version is on trial and does not prove itself in time, the link goes back and
// Watch answers task.ErrRestart. Otherwise it answers nil, at once or when the
// trial is over.
func (u *Updater) Watch(ctx context.Context) error {
	u.mu.Lock()
	t, err := u.readTrial()
	u.mu.Unlock()
	if err != nil || t.outcome != trying || t.version != u.Version {
		return err
	}
	over, cancel := context.WithTimeout(ctx, u.length())
	defer cancel()
	if _, err := u.settled(over, t.task); err == nil || ctx.Err() != nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t, err = u.readTrial(); err != nil || t.outcome != trying {
		return err // it proved itself in the last moment
	}
	t.outcome, t.detail = rolledBack, fmt.Sprintf("no heartbeat was accepted within %s", u.length())
	if err := u.writeTrial(t); err != nil {
		return err
	}
	if err := u.point(t.previous); err != nil {
		return err
	}
	return task.ErrRestart
}

// install copies what was fetched by somebody else, believing only the sum.
func (u *Updater) install(from, to string, m Manifest) error {
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open what was fetched: %w", err)
	}
	defer func() { _ = in.Close() }()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() != m.Size {
		return fmt.Errorf("what was fetched is not a file of %d bytes", m.Size)
	}
	if err := os.MkdirAll(u.path(to), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(u.path(to), programName+".new")
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(in, m.Size+1))
	if err = errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	if n != m.Size || hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		return errors.New("what was fetched does not have the manifest's sha256 and size")
	}
	return atomicfile.Rename(tmp, filepath.Join(u.path(to), programName))
}

// How often, and after which pause, a program is started again that another process holds open for
// writing.
const (
	busyTries = 20
	busyPause = 100 * time.Millisecond
)

// probe starts the new program once, to see that it starts here at all.
func (u *Updater) probe(ctx context.Context, to string, m Manifest) (string, error) {
	ask := u.Ask
	if ask == nil {
		ask = askVersion
	}
	says, err := ask(ctx, filepath.Join(u.path(to), programName))
	// A process that the agent started while it wrote the program holds it open for a moment.
	for tries := 0; errors.Is(err, syscall.ETXTBSY) && tries < busyTries && ctx.Err() == nil; tries++ {
		time.Sleep(busyPause)
		says, err = ask(ctx, filepath.Join(u.path(to), programName))
	}
	if err != nil {
		return "", fmt.Errorf("the new program does not start: %w", err)
	}
	if says != m.Version {
		return "", fmt.Errorf("the new program says that it is %.64q, the manifest %q", says, m.Version)
	}
	return "it starts", nil
}

func askVersion(ctx context.Context, program string) (string, error) {
	r := toolrunner.Runner{Root: "/", Tools: filepath.Dir(program), Timeout: 15 * time.Second,
		Commands: []toolrunner.Command{{Program: filepath.Base(program), Words: []string{"version"}}}}
	out, err := r.Run(ctx, filepath.Base(program), "version")
	return strings.TrimSpace(string(out[:min(len(out), 256)])), err
}
