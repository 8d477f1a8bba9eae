package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	sdk "go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/secretscan"
)

// The places of a line of Slipway's own log, and of one that the demo printed.
const (
	slipwayLog  = "Slipway's log"
	printedCopy = "what the demo printed"
)

// canary is a text that the search must find where it was planted. It proves that the search reads
// the place.
type canary struct {
	kind, place, value string
	hashed             bool // the search knows only the hash of the value, as of a token
}

type canaries []canary

func newCanaries() canaries {
	var out canaries
	for _, place := range []string{"workflow ", slipwayLog, "table ", printedCopy} {
		out = append(out, canary{kind: "canary in " + strings.TrimSpace(place), place: place, value: "canary-" + rand.Text()})
	}
	token := make([]byte, 32)
	_, _ = rand.Read(token) // it never fails
	return append(out, canary{"hashed canary in a table", "table ", base64.RawURLEncoding.EncodeToString(token), true})
}

func (cs canaries) secrets() []secretscan.Secret {
	var out []secretscan.Secret
	for _, c := range cs {
		if !c.hashed {
			out = append(out, secretscan.Secret{Kind: c.kind, Value: c.value})
		}
	}
	return out
}

func (cs canaries) hashes() []secretscan.Hash {
	var out []secretscan.Hash
	for _, c := range cs {
		if c.hashed {
			out = append(out, secretscan.Hash{Kind: c.kind, SHA256: sha256.Sum256([]byte(c.value))})
		}
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
// Slipway's log, and two in a row of the database, one of them as a token, through Slipway's
// client, logger and API. Another one goes to the copy of what the demo prints, not to the screen.
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
	sku := map[string]any{"name": "canary", "spec": spec.SKUSpec{GPUs: 8, GPUModelContains: cs[2].value + " " + cs[4].value}}
	_, err := o.api.CreateSku(ctx, client.SKURequest{}, client.Body(sku))
	if err == nil {
		_, err = fmt.Fprintln(c.printed, "the search for secrets plants a canary:", cs[3].value)
	}
	if err != nil {
		remove()
	}
	return cs, remove, err
}
