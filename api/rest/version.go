package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
)

// Version is what the server is.
type Version struct {
	Version string `json:"version"`
	API     string `json:"api"`
}

func (s *server) registerVersion() {
	op.Add(s.api, huma.Operation{OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: []string{"system"}, Summary: "The server's version"},
		func(context.Context, *struct{}) (*struct{ Body Version }, error) {
			return &struct{ Body Version }{Version{s.api.Version(), "v1"}}, nil
		})
}
