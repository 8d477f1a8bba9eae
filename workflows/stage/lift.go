package stage

import (
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Lift returns a stage of one kind of job as a stage of another, whose state holds the first one's.
// The stage does and observes the same there.
func Lift[S, T any](st Stage[T], part func(*S) *T) Stage[S] {
	out := Stage[S]{
		Name: st.Name, Doc: st.Doc, Weight: st.Weight, Percent: st.Percent, ActionType: st.ActionType, Deadline: st.Deadline,
		DeadlineClass: st.DeadlineClass, Waits: st.Waits, Adoptable: st.Adoptable, Retries: st.Retries,
		Run: func(ctx workflow.Context, s *S) error { return st.Run(ctx, part(s)) },
	}
	if st.Skip != nil {
		out.Skip = func(s *S) string { return st.Skip(part(s)) }
	}
	if st.Observe != nil {
		out.Observe = func(ctx workflow.Context, s *S) (Observation, error) { return st.Observe(ctx, part(s)) }
	}
	if st.Adopt != nil {
		out.Adopt = func(ctx workflow.Context, s *S, entry contract.ActionEntry) error {
			return st.Adopt(ctx, part(s), entry)
		}
	}
	if st.Undo != nil {
		out.Undo = func(ctx workflow.Context, s *S) error { return st.Undo(ctx, part(s)) }
	}
	if st.HasUndo != nil {
		out.HasUndo = func(s *S, row lifecycle.StageRow) bool { return st.HasUndo(part(s), row) }
	}
	if st.VerifyUndo != nil {
		out.VerifyUndo = func(ctx workflow.Context, s *S) (string, error) { return st.VerifyUndo(ctx, part(s)) }
	}
	return out
}

// FirstReason returns a Skip that gives the first reason of the others, in their order. A nil Skip
// has no reason.
func FirstReason[S any](skips ...func(*S) string) func(*S) string {
	return func(s *S) string {
		for _, skip := range skips {
			if skip == nil {
				continue
			}
			if why := skip(s); why != "" {
				return why
			}
		}
		return ""
	}
}
