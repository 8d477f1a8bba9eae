package privileged

import (
	"context"
	"errors"
	"sync"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// execute runs a task and streams what happens. When the other end is gone, it
// is as if the lease were lost: nobody renews it.
func (s *Server) execute(ctx context.Context, ln *line, r request) (lifecycle.TaskResult, error) {
	halt := make(chan struct{})
	var once sync.Once
	lost := func() { once.Do(func() { close(halt) }) }
	fetches := make(chan fetched)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer lost()
		for {
			var more request
			if err := ln.read(&more); err != nil {
				return
			}
			if more.Halt {
				lost()
			}
			if more.Fetched != nil {
				select {
				case fetches <- *more.Fetched:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	steps := progress(ln)
	defer close(steps)
	return s.Executor.Execute(ctx, *r.Signed, r.Generation, task.Control{
		Halt: halt,
		Progress: func(step string) {
			select {
			case steps <- step:
			default: // it is for people; a slow reader must not hold a task up
			}
		},
		Fetch: func(ctx context.Context, f task.File) (string, error) {
			if err := ln.write(answer{Fetch: &f}); err != nil {
				return "", err
			}
			select {
			case got := <-fetches:
				if got.Error != "" {
					return "", errors.New(got.Error)
				}
				return got.Path, nil
			case <-gone:
				return "", task.ErrHalted
			case <-ctx.Done():
				return "", task.ErrHalted
			}
		},
	})
}

func progress(ln *line) chan string {
	steps := make(chan string, 16)
	go func() {
		for s := range steps {
			_ = ln.write(answer{Progress: s})
		}
	}()
	return steps
}
