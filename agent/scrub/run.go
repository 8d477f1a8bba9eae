package scrub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The steps of a scrub, in their order.
const (
	StepIdentity      = "identity"
	StepContainers    = "containers"
	StepProcesses     = "processes"
	StepUsers         = "users"
	StepKeys          = "keys"
	StepAutostart     = "autostart"
	StepMounts        = "mounts"
	StepLayers        = "layers"
	StepRemoteDevices = "remote_devices"
	StepFiles         = "files"
	StepGPUProcesses  = "gpu_processes"
	StepGPUReset      = "gpu_reset"
	StepGPUMemory     = "gpu_memory"
	StepMemoryRequest = "memory_overwrite_request"
	StepDisks         = "disks"
)

// Steps lists the steps of a scrub in their order. Storage of other machines is unmounted and
// disconnected before the steps that remove files; what lies over drives is taken apart in between,
// so that a drive of another machine is not in use by it.
func Steps() []string {
	return []string{StepIdentity, StepContainers, StepProcesses, StepAutostart, StepMounts, StepLayers, StepRemoteDevices, StepUsers, StepKeys, StepFiles,
		StepGPUProcesses, StepGPUReset, StepGPUMemory, StepMemoryRequest, StepDisks}
}

// Output is TaskResult.Output of a scrub.
type Output struct {
	// BootDisks and Protected are the serials of disks that were left as they
	// are: the first because only an installation replaces the system that the
	// agent runs from, the second because the task said so. Both stand in Devices
	// with method none and verified false, and do not by themselves make the
	// result not OK: who issues a certificate must replace them by proof.
	BootDisks []string `json:"boot_disks,omitempty"`
	Protected []string `json:"protected,omitempty"`
}

// skipped carries why a step does not apply.
type skipped string

func (s skipped) Error() string { return string(s) }

type step struct {
	name string
	do   func(*run, context.Context) (string, error)
}

// run is one scrub or one validation.
type run struct {
	Host
	runID   string
	keep    map[string]bool
	keyring []string // the public keys that may stay
	protect []string
	// expected are the drives that the task names; nil is not compared.
	expected []spec.ExpectedDrive
	// code says how the machine or its drives differ from those of the task; "" for not at all.
	code string
	// overwrite allows a disk without a purge command to be cleared.
	overwrite bool
	record    func(lifecycle.StepResult)
	notes     *notes

	mu      sync.Mutex
	steps   []lifecycle.StepResult
	devices []lifecycle.DeviceResult
	out     Output
}

func newRun(h Host, runID string, keep, keyring []string, record func(lifecycle.StepResult)) *run {
	r := &run{Host: h.withDefaults(), runID: runID, keep: map[string]bool{"root": true}, keyring: keyring, record: record}
	for _, k := range keep {
		r.keep[k] = true
	}
	if r.record == nil {
		r.record = func(lifecycle.StepResult) {}
	}
	return r
}

// Scrub does the steps in their order and reports each to record, which may be
// nil, as it ends. It may be run again after a crash: it checks
// everything again, waits for an erasure that the drive still works on, and finishes
// what the notes of the same run id list as begun. It stops between steps
// when ctx ends; what the drives were told to do goes on in them.
func Scrub(ctx context.Context, h Host, args spec.ScrubArgs, record func(lifecycle.StepResult)) lifecycle.TaskResult {
	r := newRun(h, args.RunID, args.KeepUsers, args.KeepKeys, record)
	r.protect, r.overwrite, r.expected = args.ProtectSerials, args.AllowOverwrite, args.ExpectedDrives
	for _, s := range args.Steps {
		if !slices.Contains(Steps(), s) {
			return r.refuse(fmt.Sprintf("there is no step %q", s))
		}
	}
	if err := r.check(); err != nil {
		return r.refuse(err.Error())
	}
	var err error
	if r.notes, err = openNotes(r.Host, args.RunID); err != nil {
		return r.refuse(err.Error())
	}
	do := []func(*run, context.Context) (string, error){(*run).identity, (*run).containers, (*run).processes, (*run).autostart,
		(*run).unmount, (*run).takeApart, (*run).disconnect, (*run).users, (*run).keys, (*run).files, (*run).gpuProcesses, (*run).gpuReset, (*run).gpuMemory, (*run).requestOverwrite, (*run).eraseDisks}
	for i, name := range Steps() {
		if !asked(args.Steps, name) {
			continue
		}
		ok, cont := r.step(ctx, step{name, do[i]})
		if !cont {
			return r.end(fmt.Sprintf("stopped before the step %s: %v", name, context.Cause(ctx)))
		}
		if !ok && name == StepIdentity { // this may be another machine: nothing is touched
			res := r.end("")
			if r.code == "" {
				res.Code = lifecycle.TaskCodeRefused
			}
			return res
		}
	}
	return r.end("")
}

// asked reports whether a scrub that is limited to some steps does this one. The identity is always
// compared, and no disk is erased while storage of other machines may be connected, or before what
// lies over it is taken apart.
func asked(steps []string, name string) bool {
	return len(steps) == 0 || name == StepIdentity || slices.Contains(steps, name) ||
		(name == StepLayers || name == StepRemoteDevices) && slices.Contains(steps, StepDisks)
}

// step does one step; cont is false when it was not begun.
func (r *run) step(ctx context.Context, s step) (ok, cont bool) {
	if ctx.Err() != nil {
		return false, false
	}
	res := lifecycle.StepResult{Name: s.name, StartedAt: time.Now().UTC()}
	detail, err := s.do(r, ctx)
	res.EndedAt = time.Now().UTC()
	var skip skipped
	switch {
	case errors.As(err, &skip):
		res.OK, res.Skipped, res.Detail = true, task.Clip(string(skip), maxSentence), task.Clip(detail, maxSentence)
	case err != nil:
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if detail != "" {
			text += "; " + detail
		}
		res.Detail = task.Clip(text, maxSentence)
	default:
		res.OK, res.Detail = true, task.Clip(detail, maxSentence)
	}
	r.mu.Lock()
	r.steps = append(r.steps, res)
	r.mu.Unlock()
	r.record(res)
	return res.OK, true
}

func (r *run) device(d lifecycle.DeviceResult) {
	d.Detail = task.Clip(d.Detail, 500)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = append(r.devices, d)
}

func (r *run) refuse(why string) lifecycle.TaskResult {
	return lifecycle.TaskResult{Code: lifecycle.TaskCodeRefused, Message: why, BootID: r.text(bootIDFile), Simulated: r.simulated()}
}

// end makes the result. stopped says why not all steps were done.
func (r *run) end(stopped string) lifecycle.TaskResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := lifecycle.TaskResult{OK: stopped == "", BootID: r.text(bootIDFile), Steps: r.steps, Devices: r.devices, Simulated: r.simulated()}
	var failed []string
	for _, s := range r.steps {
		if !s.OK {
			failed = append(failed, fmt.Sprintf("%s: %s", s.Name, s.Detail))
		}
	}
	if stopped != "" {
		failed = append(failed, stopped)
	}
	if len(failed) > 0 {
		res.OK, res.Code, res.Message = false, lifecycle.TaskCodeStepFailed, task.Clip(strings.Join(failed, "; "), maxSentence)
		if r.code == lifecycle.TaskCodeDriveUnexpected || r.code != "" && len(failed) == 1 { // else more is wrong
			res.Code = r.code
		}
	}
	if raw, err := json.Marshal(r.out); err == nil && string(raw) != "{}" {
		res.Output = raw
	}
	return res
}
