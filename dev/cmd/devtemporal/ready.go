package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	pollEvery   = 50 * time.Millisecond
	callLimit   = 5 * time.Second
	frontHealth = "temporal.api.workflowservice.v1.WorkflowService"
)

// awaitReady returns once the frontend serves, each namespace answers, and each search attribute is
// registered in it (adding those that a kept database file lacks).
func awaitReady(ctx context.Context, front string, opts options) error {
	ctx, cancel := context.WithTimeout(ctx, opts.readyWithin)
	defer cancel()
	conn, err := grpc.NewClient(front, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to our own frontend: %w", err)
	}
	defer func() { _ = conn.Close() }()

	if err := poll(ctx, "the frontend to serve", func(ctx context.Context) error {
		res, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: frontHealth})
		if err == nil && res.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			err = fmt.Errorf("it is %s", res.GetStatus())
		}
		return err
	}); err != nil {
		return err
	}
	for _, name := range opts.namespaces {
		if err := poll(ctx, "namespace "+name, func(ctx context.Context) error {
			_, err := workflowservice.NewWorkflowServiceClient(conn).DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
			return err
		}); err != nil {
			return err
		}
		if err := poll(ctx, "the search attributes of namespace "+name, func(ctx context.Context) error {
			return ensureSearchAttributes(ctx, operatorservice.NewOperatorServiceClient(conn), name, opts.searchAttributes)
		}); err != nil {
			return err
		}
	}
	return nil
}

// ensureSearchAttributes succeeds when all wanted attributes are there with the wanted type; it
// adds what is missing and then reports that once as an error, so that the caller looks again.
func ensureSearchAttributes(ctx context.Context, operator operatorservice.OperatorServiceClient, namespace string, want map[string]enumspb.IndexedValueType) error {
	have, err := operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return err
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, typ := range want {
		switch found, ok := have.GetCustomAttributes()[name]; {
		case !ok:
			missing[name] = typ
		case found != typ:
			return fmt.Errorf("%s is registered as %s, wanted %s: delete the database file to start over", name, found, typ)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing}); err != nil {
		return err
	}
	return errors.New("just added, not yet visible")
}

// startUI serves the embedded Web UI. It fetches nothing from outside (no news, no feedback link).
func startUI(front string, opts options) *server.Server {
	ui := server.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
		TemporalGRPCAddress: front,
		Host:                loopback,
		Port:                opts.uiPort,
		EnableUI:            true,
		DefaultNamespace:    opts.namespaces[0],
		DisableNewsFetch:    true,
		HideLogs:            true,
		CORS:                uiconfig.CORS{CookieInsecure: true}, // plain HTTP on loopback; without it no action in the UI works
	}))
	go func() { _ = ui.Start() }() // it ends the process itself when the port is taken, and says so
	return ui
}

func awaitUI(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*callLimit)
	defer cancel()
	browser := &http.Client{Timeout: callLimit}
	return poll(ctx, "the Web UI", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		res, err := browser.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("it answered %s", res.Status)
		}
		return nil
	})
}

// poll repeats try until it succeeds; at ctx's end it returns what try said last.
func poll(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	for {
		call, cancel := context.WithTimeout(ctx, callLimit)
		err := try(call)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, last)
		case <-time.After(pollEvery):
		}
	}
}
