package stack

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/internal/config"
)

// Restart ends all of Slipway's processes, calls maintain, and starts them again. The machines,
// with their agents, run on. maintain gets the configuration of migrations.
func (s *Stack) Restart(ctx context.Context, maintain func(config.Config) error) error {
	if err := errors.Join(s.StopRole("api"), s.StopRole("worker")); err != nil {
		return err
	}
	s.App.Close()
	owner := s.Config
	owner.Database.OwnerURL = s.Postgres.DSN(s.Database)
	if err := maintain(owner); err != nil {
		return err
	}
	if err := s.openApp(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

// openApp connects Slipway to its servers.
func (s *Stack) openApp(ctx context.Context) error {
	app, err := server.Open(ctx, s.Config, orDiscard(s.Options.Log))
	if err != nil {
		return err
	}
	app.Receiver = s.Options.Receiver
	s.App = app
	return nil
}

// serve starts the processes of the options and waits until the APIs answer.
func (s *Stack) serve(ctx context.Context) error {
	if !s.Options.NoAPI {
		s.StartRole("api", s.App.RunAPI)
	}
	if !s.Options.NoWorker {
		s.StartRole("worker", func(ctx context.Context) error { return s.App.RunWorker(ctx) })
	}
	return s.ready(ctx)
}
