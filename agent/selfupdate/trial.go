package selfupdate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
)

// The names below the directory of the installation.
const (
	currentLink = "current"
	trialFile   = "trial"
	highestFile = "highest"
	programName = "slipway-agent"
)

// outcome is how a trial stands.
type outcome string

const (
	trying     outcome = "trying"
	confirmed  outcome = "confirmed"
	rolledBack outcome = "rolled_back"
)

// trial is what is known of the last update. It is lines of key=value, because
// the guard script reads and writes it too.
type trial struct {
	task           string
	version        string
	previous, next string // a or b
	outcome        outcome
	// until is when the guard gives up; starts is how often it saw one begin.
	until  time.Time
	starts int
	detail string
}

func (u *Updater) path(name string) string { return filepath.Join(u.Root, u.Dir, name) }

func (u *Updater) readTrial() (trial, error) {
	var t trial
	raw, err := os.ReadFile(u.path(trialFile))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read the trial: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "task":
			t.task = value
		case "version":
			t.version = value
		case "previous":
			t.previous = value
		case "next":
			t.next = value
		case "outcome":
			t.outcome = outcome(value)
		case "until":
			secs, _ := strconv.ParseInt(value, 10, 64)
			t.until = time.Unix(secs, 0)
		case "starts":
			t.starts, _ = strconv.Atoi(value)
		case "detail":
			t.detail = value
		}
	}
	if t.task == "" || !side(t.previous) || !side(t.next) {
		return trial{}, nil // not a trial
	}
	return t, nil
}

func side(s string) bool { return s == "a" || s == "b" }

func (u *Updater) writeTrial(t trial) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "task=%s\nversion=%s\nprevious=%s\nnext=%s\noutcome=%s\nuntil=%d\nstarts=%d\ndetail=%s\n", t.task, t.version, t.previous, t.next,
		t.outcome, t.until.Unix(), t.starts, strings.ReplaceAll(t.detail, "\n", " "))
	return atomicfile.Replace(u.path(trialFile), b.Bytes(), 0o644)
}

func (u *Updater) highest() version {
	raw, _ := os.ReadFile(u.path(highestFile)) // missing: none was updated to
	v, _ := parseVersion(strings.TrimSpace(string(raw)))
	return v
}

// current is which side the link names.
func (u *Updater) current() (string, error) {
	to, err := os.Readlink(u.path(currentLink))
	if err != nil || !side(to) {
		return "", refused("%s is not a link to a or b: this agent was not installed by its installer; run that first", filepath.Join(u.Dir, currentLink))
	}
	return to, nil
}

// point moves the link in one step.
func (u *Updater) point(to string) error {
	if now, err := u.current(); err == nil && now == to {
		return nil
	}
	tmp := u.path(currentLink + ".new")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, tmp); err != nil {
		return err
	}
	return atomicfile.Rename(tmp, u.path(currentLink))
}
