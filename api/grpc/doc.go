// Package grpc serves the API of machines, plans and runs: gRPC, gRPC-Web and JSON on the router of
// the REST API.
package grpc
