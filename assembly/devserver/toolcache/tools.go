// Package toolcache builds the programs that development and tests need, and keeps them for all
// checkouts of a user: the pinned tools and the Temporal server. A program is built once for each
// hash of what it is made of.
//
// The cache is the folder slipway in the user's cache folder (os.UserCacheDir), or the folder that
// SLIPWAY_CACHE_DIR names:
//
//	bin/<hash>/<name>    a program; the newest versions of each are kept
//	checked/<hash>       an empty file: a check passed for the inputs with this hash
//
// The cache holds programs that its user runs. So a folder or program that another user could have
// changed is not used.
package toolcache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Tool is a program that a module of the checkout pins.
type Tool struct {
	Name    string // of the program
	Module  string // folder of the module, relative to the checkout
	Package string // what to build in the module
	Takes   string // how long the first build takes, for the user who waits
}

// Tools returns all tools of the checkout.
func Tools() []Tool {
	return []Tool{
		{"devtemporal", "dev", "./cmd/devtemporal", "6 minutes"},
		{"gotestsum", "tools", "gotest.tools/gotestsum", "20 seconds"},
		{"sqlc", "tools", "github.com/sqlc-dev/sqlc/cmd/sqlc", "90 seconds"},
		{"workflowcheck", "tools", "go.temporal.io/sdk/contrib/tools/workflowcheck", "20 seconds"},
		{
			"golangci-lint", "tools/lint", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint",
			"3 minutes",
		},
		{"oapi-codegen", "tools/openapi", "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen", "90 seconds"},
		{"buf", "tools/proto", "github.com/bufbuild/buf/cmd/buf", "3 minutes"},
		{"protoc-gen-go", "tools/proto", "google.golang.org/protobuf/cmd/protoc-gen-go", "15 seconds"},
		{"protoc-gen-connect-go", "tools/proto", "connectrpc.com/connect/cmd/protoc-gen-connect-go", "20 seconds"},
		{"terraform-provider-maas", "tools/terraform", "terraform-provider-maas", "2 minutes"}, // for the peers of the proof
		// It brings the protocols of service meshes, so it is a module of its own.
		{"grpcurl", "tools/grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl", "2 minutes"},
		// A real API server with its store and its controllers, for the area kube of the proof.
		{"kube-apiserver", "tools/kube", "k8s.io/kubernetes/cmd/kube-apiserver", "12 minutes"},
		{"kube-controller-manager", "tools/kube", "k8s.io/kubernetes/cmd/kube-controller-manager", "4 minutes"},
		{"etcd", "tools/kube", "go.etcd.io/etcd/server/v3", "1 minute"},
		// The Temporal CLI brings a server of its own version, so it is a module of its own.
		{"temporal", "tools/temporal", "github.com/temporalio/cli/cmd/temporal", "5 minutes"},
	}
}

// Find returns the tool with the name.
func Find(name string) (Tool, error) {
	tools := Tools()
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		var names []string
		for _, t := range tools {
			names = append(names, t.Name)
		}
		return Tool{}, fmt.Errorf("there is no tool %q; the tools are %v", name, names)
	}
	return tools[i], nil
}

// Root returns the folder of the Slipway checkout that the current folder is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		if isFile(filepath.Join(dir, "go.mod")) && isFile(filepath.Join(dir, "dev", "go.mod")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("not inside a Slipway checkout: run this from a folder of it")
		}
		dir = parent
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
