package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/secretscan"
)

// slipwayLog is the place of a line of Slipway's own log.
const slipwayLog = "Slipway's log"

// canary is a text that the search must find where it was planted. It proves that the search reads
// the place.
type canary struct{ kind, place, value string }

type canaries []canary

func newCanaries() canaries {
	var out canaries
	for _, place := range []string{"workflow ", slipwayLog, "table "} {
		out = append(out, canary{"canary in " + strings.TrimSpace(place), place, "canary-" + rand.Text()})
	}
	return out
}

func (cs canaries) secrets() []secretscan.Secret {
	var out []secretscan.Secret
	for _, c := range cs {
		out = append(out, secretscan.Secret{Kind: c.kind, Value: c.value})
	}
	return out
}

// check returns the findings that are no canaries. It returns an error when a canary was not found
// in its place.
func (cs canaries) check(found []secretscan.Finding) (leaks []secretscan.Finding, err error) {
	for _, c := range cs {
		if !slices.ContainsFunc(found, func(f secretscan.Finding) bool { return f.Kind == c.kind && strings.HasPrefix(f.Place, c.place) }) {
			return nil, fmt.Errorf("the search did not find the %s: it does not read what it should", c.kind)
		}
	}
	return slices.DeleteFunc(slices.Clone(found), func(f secretscan.Finding) bool {
		return slices.ContainsFunc(cs, func(c canary) bool { return f.Kind == c.kind })
	}), nil
}

const canaryWorkflow = "secret-search/canary"

// plantCanaries plants one canary in the input of a workflow, in base64 in base64 in JSON, one in
// Slipway's log, and one in a row of the database, through Slipway's client, logger and API.
func (c *secretSearch) plantCanaries(ctx context.Context, o *operator) (canaries, func(), error) {
	cs := newCanaries()
	temporal := c.stack.App.Temporal
	inner := base64.StdEncoding.EncodeToString([]byte(`{"value": "` + cs[0].value + `"}`))
	input := map[string]string{"document": base64.StdEncoding.EncodeToString([]byte("of the search: " + inner))}
	// No worker takes this task queue: the workflow stays at its first event.
	options := sdk.StartWorkflowOptions{ID: canaryWorkflow, TaskQueue: "secret-search", WorkflowExecutionTimeout: searchLimit}
	if _, err := temporal.ExecuteWorkflow(ctx, options, "Canary", input); err != nil {
		return nil, nil, err
	}
	remove := func() {
		_ = temporal.TerminateWorkflow(context.WithoutCancel(ctx), canaryWorkflow, "", "the search is over")
	}
	c.stack.App.Log.Info("the search for secrets plants a canary", "canary", cs[1].value)
	sku := map[string]any{"name": "canary", "spec": lifecycle.SKUSpec{GPUs: 8, GPUModelContains: cs[2].value}}
	err := o.api.call(ctx, http.MethodPost, "/admin/skus", sku, nil)
	if err == nil {
		err = c.listed(ctx)
	}
	if err != nil {
		remove()
	}
	return cs, remove, err
}

// listed waits until Temporal lists the canary's workflow. What was started before is listed then
// too.
func (c *secretSearch) listed(ctx context.Context) error {
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.stack.Config.Temporal.Namespace, Query: "WorkflowId = '" + canaryWorkflow + "'"}
	for {
		list, err := c.stack.App.Temporal.ListWorkflow(ctx, request)
		if err == nil && len(list.GetExecutions()) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("temporal does not list the canary's workflow: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
