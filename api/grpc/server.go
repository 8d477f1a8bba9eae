package grpc

import (
	"cmp"
	"context"
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

// Config configures the API. Everything else comes from the kernel of the REST areas.
type Config struct {
	// Offers returns the capabilities of a provider, and none for an unknown provider.
	Offers func(provider string) []runplan.Capability
	// LogsIn reports whether a provider logs in to its machines by SSH. Nil is for providers that
	// never do.
	LogsIn func(provider string) bool
	// CustomersTakeNodes says that customers may start runs that install the node of their machine
	// again, or take it out of service.
	CustomersTakeNodes bool
	// AskJob requests an action of a running job and waits for the answer.
	AskJob func(ctx context.Context, jobID string, action lifecycle.Action, reason string) error
	// WriteLimit is how long the reader of a stream may take nothing before it loses the stream. 0
	// selects 10 s.
	WriteLimit time.Duration
}

const (
	defaultWriteLimit = 10 * time.Second
	// healthLimit bounds the check that the database answers.
	healthLimit = 3 * time.Second
)

// server serves the services.
type server struct {
	api   *op.API
	store *db.Store
	cfg   Config
}

// services returns the names of the services that the API serves.
func services() []string {
	return []string{slipwayv1connect.MachineServiceName, slipwayv1connect.PlanServiceName, slipwayv1connect.RunServiceName, slipwayv1connect.CampaignServiceName}
}

// Register serves the API on the router of the REST API: gRPC, gRPC-Web and JSON on the same paths.
func Register(api *op.API, cfg Config) {
	cfg.WriteLimit = cmp.Or(cfg.WriteLimit, defaultWriteLimit)
	s := &server{api: api, store: api.Store(), cfg: cfg}
	options := []connect.HandlerOption{withMaxMessage(), WithJSON(), connect.WithCodec(protoCodec{}), connect.WithInterceptors(&guard{s}), connect.WithCompressMinBytes(1 << 20)}
	mount := s.mounts(s.signIn, s.allow)
	mount(slipwayv1connect.NewMachineServiceHandler(machineService{s}, options...))
	mount(slipwayv1connect.NewPlanServiceHandler(planService{s}, options...))
	mount(slipwayv1connect.NewRunServiceHandler(runService{s}, options...))
	mount(slipwayv1connect.NewCampaignServiceHandler(campaignService{s}, options...))
	reflector := grpcreflect.NewStaticReflector(services()...)
	reflect := s.mounts(s.byToken, s.paced)
	reflect(grpcreflect.NewHandlerV1(reflector, withMaxMessage()))
	reflect(grpcreflect.NewHandlerV1Alpha(reflector, withMaxMessage()))
	path, health := grpchealth.NewHandler(s, withMaxMessage())
	api.Router().Post(path+"*", health.ServeHTTP)
	api.Unbounded(func(path string) bool {
		return path == slipwayv1connect.RunServiceWatchRunsProcedure || path == slipwayv1connect.RunServiceStreamRunLogsProcedure
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

// writerKey is the key under which the context of a stream has its http.ResponseController.
type writerKey struct{}
