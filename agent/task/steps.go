package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// The bounds of a result, so that it always reaches the server.
const (
	maxMessage = 2000
	maxDetail  = 2000
	maxSteps   = 256
	maxResult  = 256 << 10
)

// ErrHalted says that no new step may begin.
var ErrHalted = errors.New("no new step is begun: the lease is lost or the agent ends")

// errSkipped carries why a step does not apply.
type errSkipped string

func (e errSkipped) Error() string { return string(e) }

// Skip is what a step answers when it does not apply.
func Skip(reason string) error { return errSkipped(reason) }

// Recorder records the steps of one run. It is safe for concurrent use.
type Recorder struct {
	now      func() time.Time
	progress func(string)
	halt     <-chan struct{} // closed when no new step may begin

	mu     sync.Mutex
	steps  []lifecycle.StepResult
	halted bool
}

// NewRecorder makes a recorder; before are steps of an earlier process. halt and
// progress may be nil.
func NewRecorder(before []lifecycle.StepResult, halt <-chan struct{}, progress func(string)) *Recorder {
	if progress == nil {
		progress = func(string) {}
	}
	return &Recorder{now: time.Now, progress: progress, halt: halt, steps: slices.Clone(before)}
}

// Halt is closed when no new step may begin; long waits within a step may end
// with it.
func (r *Recorder) Halt() <-chan struct{} { return r.halt }

// Do runs one step and records it. do answers what it found or did, in a
// sentence; an error fails the step, and one of Skip says that it does not apply
// and is no failure. Do answers ErrHalted when no new step may begin.
func (r *Recorder) Do(ctx context.Context, name string, do func(context.Context) (detail string, err error)) error {
	if ctx.Err() != nil || r.over() {
		r.mu.Lock()
		r.halted = true
		r.mu.Unlock()
		return ErrHalted
	}
	r.progress(name)
	step := lifecycle.StepResult{Name: Clip(name, 100), StartedAt: r.now().UTC()}
	detail, err := do(ctx)
	step.EndedAt, step.Detail = r.now().UTC(), Clip(detail, maxDetail)
	var skipped errSkipped
	switch {
	case errors.As(err, &skipped):
		step.OK, step.Skipped, err = true, Clip(string(skipped), maxDetail), nil
	case err != nil:
		step.Detail = Clip(strings.TrimPrefix(detail+"; "+err.Error(), "; "), maxDetail)
	default:
		step.OK = true
	}
	r.Add(step)
	return err
}

// Note records a step that was done elsewhere, and tells of it.
func (r *Recorder) Note(s lifecycle.StepResult) {
	r.progress(s.Name)
	r.Add(s)
}

// Add records a step that was done elsewhere.
func (r *Recorder) Add(s lifecycle.StepResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.steps) < maxSteps {
		r.steps = append(r.steps, s)
	}
}

// Steps are the steps until now.
func (r *Recorder) Steps() []lifecycle.StepResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}

// End is the result of a run that ended with err: OK for nil, otherwise
// step_failed with the error.
func (r *Recorder) End(err error) lifecycle.TaskResult {
	switch {
	case err == nil:
		return lifecycle.TaskResult{OK: true}
	case errors.Is(err, ErrHalted):
		return lifecycle.TaskResult{Code: codeHalted}
	}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.Result()
	}
	return Fail(CodeStepFailed, err.Error())
}

func (r *Recorder) over() bool {
	select {
	case <-r.halt:
		return true
	default:
		return false
	}
}

// wasHalted says that a step was not begun.
func (r *Recorder) wasHalted() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.halted }

// bound makes a result small enough to be reported.
func bound(res lifecycle.TaskResult) lifecycle.TaskResult {
	res.Message = Clip(res.Message, maxMessage)
	res.Steps = slices.Clone(res.Steps[:min(len(res.Steps), maxSteps)])
	if size(res) > maxResult {
		for i := range res.Steps {
			res.Steps[i].Detail = Clip(res.Steps[i].Detail, 200)
		}
	}
	if size(res) > maxResult && len(res.Output) > 0 {
		res.Message = Clip(fmt.Sprintf("its output of %d bytes was too large and is left out. %s", len(res.Output), res.Message), maxMessage)
		res.Output = nil
	}
	if size(res) > maxResult { // many devices with much to say
		res.Devices = slices.Clone(res.Devices)
		for i := range res.Devices {
			res.Devices[i].Detail = Clip(res.Devices[i].Detail, 200)
		}
	}
	return res
}

func size(res lifecycle.TaskResult) int {
	raw, err := json.Marshal(res)
	if err != nil {
		return maxResult + 1 // an output that is no JSON
	}
	return len(raw)
}

// Clip makes foreign text fit for a report: valid, printable, bounded.
func Clip(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
