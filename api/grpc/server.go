package grpc

import (
	"cmp"
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// Config is what the API needs besides the kernel of the REST areas.
type Config struct {
	// Offers returns the capabilities of a provider, nothing of one that does not exist.
	Offers func(provider string) []runplan.Capability
	// AskJob asks a live job for an action and waits for its answer.
	AskJob func(ctx context.Context, jobID string, action lifecycle.Action, reason string) error
	// WriteLimit is how long a reader of a stream may take nothing before it loses the stream; 0 is 10
	// s.
	WriteLimit time.Duration
	// ResetLimit is how long the stream then waits for its reader, to say so; 0 is 10 min.
	ResetLimit time.Duration
}

const (
	defaultWriteLimit = 10 * time.Second
	defaultResetLimit = 10 * time.Minute
	// healthLimit bounds the question whether the database answers.
	healthLimit = 3 * time.Second
)

// server serves the services.
type server struct {
	api   *op.API
	store *db.Store
	cfg   Config
	logs  *op.Hub
}

// services are the names of what is served.
func services() []string {
	return []string{slipwayv1connect.MachineServiceName, slipwayv1connect.PlanServiceName, slipwayv1connect.RunServiceName, slipwayv1connect.CampaignServiceName}
}

// Register serves the API on the router of the REST API: gRPC, gRPC-Web and JSON on the same paths.
func Register(api *op.API, cfg Config) {
	cfg.WriteLimit, cfg.ResetLimit = cmp.Or(cfg.WriteLimit, defaultWriteLimit), cmp.Or(cfg.ResetLimit, defaultResetLimit)
	s := &server{api: api, store: api.Store(), cfg: cfg, logs: op.NewHub(api.Store(), db.ChannelRunLogs)}
	options := []connect.HandlerOption{bounded(), WithJSON(), connect.WithCodec(protoCodec{}), connect.WithInterceptors(&guard{s}), connect.WithCompressMinBytes(1 << 20)}
	mount := s.mounts(s.signIn, s.allow)
	mount(slipwayv1connect.NewMachineServiceHandler(machineService{s}, options...))
	mount(slipwayv1connect.NewPlanServiceHandler(planService{s}, options...))
	mount(slipwayv1connect.NewRunServiceHandler(runService{s}, options...))
	mount(slipwayv1connect.NewCampaignServiceHandler(campaignService{s}, options...))
	reflector := grpcreflect.NewStaticReflector(services()...)
	reflect := s.mounts(s.byToken, s.paced)
	reflect(grpcreflect.NewHandlerV1(reflector, bounded()))
	reflect(grpcreflect.NewHandlerV1Alpha(reflector, bounded()))
	path, health := grpchealth.NewHandler(s, bounded())
	api.Router().Post(path+"*", health.ServeHTTP)
	api.Unbounded(func(path string) bool {
		return path == slipwayv1connect.RunServiceWatchRunsProcedure || path == slipwayv1connect.RunServiceStreamRunLogsProcedure ||
			strings.HasPrefix(path, "/grpc.reflection.")
	})
}

// Check implements grpchealth.Checker: the API serves while its database answers.
func (s *server) Check(ctx context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	known := r.Service == ""
	for _, name := range services() {
		known = known || name == r.Service
	}
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, errUnknownService)
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	status := grpchealth.StatusServing
	if s.store.Ping(ctx) != nil {
		status = grpchealth.StatusNotServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

// writerKey is the key of the response of a stream in its context.
type writerKey struct{}
