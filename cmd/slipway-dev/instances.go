package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// rentInstance makes an instance at the simulated provider and deletes it.
func (o *operator) rentInstance(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nAn instance at a cloud provider. This provider is simulated in the worker: no server is made, and what it has reached follows the time.")
	raw, err := o.command(ctx, "instance", "create", o.bob.project, "chat", "--provider", "mock", "--zone", "mock-1", "--type", "MOCK-GPU", "--model", "acme/small", "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("slipway instance create: %w", err)
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return fmt.Errorf("slipway instance create: %w", err)
	}
	for _, args := range [][]string{
		{"instance", "show", made.ID, "--watch"}, {"instance", "actions", made.ID},
		{"instance", "terminate", made.ID, "--reason", "the demo has shown it", "--watch"}, {"instance", "history", made.ID},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	return nil
}
