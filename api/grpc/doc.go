// Package grpc is the edge of the API of machines, plans and runs: the form of its JSON, and what its
// messages mean as values of lifecycle. The services are not served yet.
package grpc
