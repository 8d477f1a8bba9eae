package main

import (
	"context"
	"io"
)

func ensureTool(ctx context.Context, name string, log io.Writer) error {
	return command(ctx, []string{"make", "--no-print-directory", "bin/" + name}, nil, log, log).Run()
}
func ensureTemporal(ctx context.Context, log io.Writer) error {
	return command(ctx, []string{"true"}, nil, log, log).Run()
}
func (s *session) vetDevModule(ctx context.Context) (cost, error) { return cost{}, nil }
func (s *session) realHost(ctx context.Context) bool              { return true }
