package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// watchFlags are how a job is watched.
type watchFlags struct {
	on       bool
	interval time.Duration
	limit    time.Duration
}

func (w *watchFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&w.on, "watch", "w", false, "follow it to its end; exits with 6 when it fails or requires operator action")
	f.DurationVar(&w.interval, "interval", time.Second, "how often to look while watching")
	f.DurationVar(&w.limit, "watch-timeout", 0, "give up watching after so long (default: never)")
}

// patience is how long a server may be away while it is watched.
const patience = time.Minute

// follow reads until step says that it is over. A server that restarts in between is waited for.
func follow[T any](ctx context.Context, read func(context.Context) (client.Answer[T], error), w watchFlags, step func(client.Answer[T], T) (bool, error)) error {
	if w.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.limit)
		defer cancel()
	}
	tick := time.NewTicker(max(w.interval, time.Millisecond))
	defer tick.Stop()
	heard := time.Now()
	for {
		r, err := read(ctx)
		v, err := client.Value(r, err)
		err = asFailure(err)
		var f *failure
		switch {
		case err == nil:
			heard = time.Now()
			over, err := step(r, v)
			if over || err != nil {
				return err
			}
		case ctx.Err() != nil:
		case errors.As(err, &f) && f.code == ExitUnreachable && time.Since(heard) < patience:
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return fail(ExitError, "watching ended before it did; it goes on without us")
		case <-tick.C:
		}
	}
}

// watchJob follows a job to its end: a picture redrawn on a terminal, a line a
// change elsewhere.
func (a *app) watchJob(ctx context.Context, id string, w watchFlags) error {
	screen := screen{a: a}
	read := func(ctx context.Context) (client.Answer[client.Job], error) { return a.api.GetJob(ctx, id) }
	return follow(ctx, read, w, func(r client.Answer[client.Job], j client.Job) (bool, error) {
		done, well := outcome(j.Status)
		switch {
		case a.output != "table":
		case a.Terminal:
			screen.draw(jobPicture(j))
		default:
			screen.lines(j)
		}
		if !done {
			return false, nil
		}
		if a.output != "table" {
			if err := a.show(r.Raw, nil); err != nil {
				return true, err
			}
		}
		return true, verdict(j, well)
	})
}

func verdict(j client.Job, well bool) error {
	if well {
		return nil
	}
	text := oneLine(fmt.Sprintf("job %s is %s", j.ID, j.Status))
	if j.Message != "" {
		text += ": " + oneLine(j.Message)
	}
	if j.NextStep != "" {
		text += "\n  " + oneLine(j.NextStep)
	}
	if len(j.AllowedActions) > 0 && j.NeedsHuman {
		text += "\n  allowed now: " + oneLine(strings.Join(j.AllowedActions, ", "))
	}
	return fail(ExitJobFailed, "%s", text)
}

func (a *app) watchBatch(ctx context.Context, id string, w watchFlags) error {
	screen := screen{a: a}
	read := func(ctx context.Context) (client.Answer[client.Batch], error) {
		return a.api.GetOnboardingBatch(ctx, id)
	}
	return follow(ctx, read, w, func(r client.Answer[client.Batch], b client.Batch) (bool, error) {
		done, well := batchEnded(b)
		if a.output == "table" {
			text := fmt.Sprintf("%s: %s", b.ID, counts(b.Counts))
			if a.Terminal {
				screen.draw(batchPicture(b, text))
			} else {
				screen.line(text)
			}
		}
		if !done {
			return false, nil
		}
		if err := a.showBatch(r); err != nil || well {
			return true, err
		}
		return true, fail(ExitJobFailed, "not all items became active: %s", batchFailed(b))
	})
}

// screen is what was shown last.
type screen struct {
	a      *app
	height int
	last   string
	stages map[string]string
}

// draw replaces the picture drawn before.
func (s *screen) draw(picture []string) {
	if s.height > 0 {
		fmt.Fprintf(s.a.screen, "\x1b[%dA", s.height)
	}
	for _, l := range picture {
		fmt.Fprint(s.a.screen, "\r")
		fmt.Fprint(s.a.Out, l)
		fmt.Fprint(s.a.screen, "\x1b[K\n")
	}
	fmt.Fprint(s.a.screen, "\x1b[J")
	s.height = len(picture)
}

// line prints a line that differs from the last one.
func (s *screen) line(text string) {
	if text = oneLine(text); text != s.last {
		fmt.Fprintln(s.a.Out, text)
		s.last = text
	}
}

// lines prints each stage when it changes, and the job when it does.
func (s *screen) lines(j client.Job) {
	if s.stages == nil {
		s.stages = map[string]string{}
	}
	for _, st := range j.Stages {
		now := fmt.Sprintf("%s/%d", st.State, st.Attempts)
		before, known := s.stages[st.Name]
		s.stages[st.Name] = now
		if now == before || !known && st.State == "pending" {
			continue
		}
		text := fmt.Sprintf("%2d/%d %s: %s", st.Ordinal, len(j.Stages), st.Name, st.State)
		if st.Attempts > 1 {
			text += fmt.Sprintf(" (try %d)", st.Attempts)
		}
		if st.Message != "" {
			text += ": " + st.Message
		}
		fmt.Fprintln(s.a.Out, oneLine(text))
	}
	s.line(fmt.Sprintf("%s %s: %s, reached %d%%", jobWhat(j), orDash(j.Hostname), j.Status, j.ReachedPercent))
}

const barWidth = 40

func bar(percent int64) string {
	full := int(min(max(percent, 0), 100)) * barWidth / 100
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

func jobPicture(j client.Job) []string {
	head := fmt.Sprintf("%s %s %3d%% %s", orDash(j.Hostname), bar(j.ReachedPercent), j.ReachedPercent, j.Status)
	switch {
	case j.Eta == nil:
	case j.Eta.Overdue:
		head += ", overdue"
	case j.Eta.P50Seconds > 0:
		head += ", about " + seconds(j.Eta.P50Seconds) + " to go"
	}
	out := []string{clip(head)}
	for _, s := range j.Stages {
		text := fmt.Sprintf("  %s %2d %-32s %s", mark(s.State), s.Ordinal, s.Name, s.State)
		if s.Attempts > 1 {
			text += fmt.Sprintf(" (try %d)", s.Attempts)
		}
		if t := took(s); t != "" && s.State == "succeeded" {
			text += " " + t
		}
		if s.Message != "" && s.State != "pending" {
			text += " " + s.Message
		}
		out = append(out, clip(text))
	}
	return out
}

func mark(state string) string {
	switch state {
	case "succeeded", "adopted":
		return "+"
	case "running":
		return ">"
	case "failed":
		return "!"
	case "skipped", "compensated":
		return "-"
	}
	return " "
}

// maxPictureItems keeps a batch's picture on one screen.
const maxPictureItems = 20

func batchPicture(b client.Batch, head string) []string {
	out := []string{clip(head)}
	for i, item := range b.Items {
		if i == maxPictureItems {
			return append(out, fmt.Sprintf("  and %d more", len(b.Items)-i))
		}
		out = append(out, clip(fmt.Sprintf("  %-20s %s %3d%% %s %s", item.Hostname, bar(item.ProgressPercent), item.ProgressPercent, item.Status, item.Stage)))
	}
	return out
}

// watchWidth keeps a line from wrapping, which would break the redrawing.
const watchWidth = 100

func clip(s string) string {
	s = oneLine(s)
	if r := []rune(s); len(r) > watchWidth {
		return string(r[:watchWidth-1]) + "…"
	}
	return s
}
