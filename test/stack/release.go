package stack

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Release is a signed release of the node agent whose program is served over HTTP.
type Release struct {
	Version             string
	Manifest, Signature []byte
	URL                 string
}

// ReleaseServer signs releases of the node agent and serves their programs.
type ReleaseServer struct {
	key    ed25519.PrivateKey
	url    string
	server *http.Server

	mu       sync.Mutex
	programs map[string][]byte // by version
}

// NewReleaseServer starts a server with a signing key of its own. Close ends it.
func NewReleaseServer(ctx context.Context) (*ReleaseServer, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &ReleaseServer{key: key, url: "http://" + l.Addr().String() + "/", programs: map[string][]byte{}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(l) }() // ends with Close
	return r, nil
}

// Close ends the server.
func (r *ReleaseServer) Close() { _ = r.server.Close() }

// ServeHTTP implements http.Handler.
func (r *ReleaseServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	version := path.Base(q.URL.Path)
	r.mu.Lock()
	program, ok := r.programs[version]
	r.mu.Unlock()
	if !ok {
		http.NotFound(w, q)
		return
	}
	_, _ = w.Write(program)
}

// PublicKey is the agent_update_key of a profile whose nodes take these releases.
func (r *ReleaseServer) PublicKey() string {
	pub, _ := r.key.Public().(ed25519.PublicKey)
	return base64.StdEncoding.EncodeToString(pub)
}

// Add signs a program as a version and serves it.
func (r *ReleaseServer) Add(version string, program []byte) (Release, error) {
	sum := sha256.Sum256(program)
	manifest, err := json.Marshal(spec.AgentManifest{
		Version: version, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(program)), OS: runtime.GOOS, Arch: runtime.GOARCH,
	})
	if err != nil {
		return Release{}, err
	}
	r.Serve(version, program)
	return Release{
		Version: version, Manifest: manifest, Signature: ed25519.Sign(r.key, append([]byte(spec.AgentManifestContext), manifest...)), URL: r.url + version,
	}, nil
}

// Serve replaces the program that is served for a version. Its manifest stays as it is.
func (r *ReleaseServer) Serve(version string, program []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs[version] = program
}

// BuildAgent builds the node agent as a version and returns its path. It builds each version once.
func BuildAgent(ctx context.Context, version string) (string, error) {
	programs.Lock()
	defer programs.Unlock()
	if built := programs.agents[version]; built != "" {
		return built, nil
	}
	root, err := toolcache.Root()
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, "bin", "slipway-agent-"+version)
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-X main.version="+version, "-o", file, "./cmd/slipway-agent")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	if programs.agents == nil {
		programs.agents = map[string]string{}
	}
	programs.agents[version] = file
	return file, nil
}
