package instance_test

import (
	"cmp"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
)

// fakeWorker is a worker that does what its test says.
type fakeWorker struct {
	mu       sync.Mutex
	checksum string
	phases   []string // that the installation ends, of which a lost connection tells once
	install  error
	reach    error
	silent   bool // vLLM does not answer
	unready  bool // /readyz refuses
	model    string
	// onInstalled and onModels are called before the answers; nil for nothing.
	onInstalled, onModels func()
	asked                 map[string]int
	address               string // of the last login
}

// sshPort returns the port of the last login.
func (w *fakeWorker) sshPort(t *testing.T) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	_, port, err := net.SplitHostPort(w.address)
	require.NoError(t, err)
	return port
}

func (w *fakeWorker) count(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	w.asked[name]++
}

func (w *fakeWorker) Install(context.Context, providers.WorkerTarget, providers.WorkerInstall) (providers.WorkerPhases, error) {
	w.count("install")
	if w.onInstalled != nil {
		w.onInstalled()
	}
	done := providers.WorkerPhases{Done: lifecycle.WorkerPhases(), ExitStatus: "0", Info: providers.WorkerInfo{Version: "1", BuildDate: "2026-01-01", Checksum: mock.Checksum}}
	switch {
	case providers.IsKind(w.install, providers.KindExit):
		done.Done, done.ExitStatus = w.phases, "7"
	case w.install != nil: // the connection was lost
		done = providers.WorkerPhases{Done: w.phases}
		w.phases = nil
	}
	return done, w.install
}

func (w *fakeWorker) setReach(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reach = err
}

func (w *fakeWorker) setSilent(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = silent
}

func (w *fakeWorker) ReachSSH(_ context.Context, at providers.WorkerTarget) (bool, error) {
	w.count("ssh")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.address = at.SSH.Address
	return w.reach == nil, w.reach
}

func (w *fakeWorker) setUnready(unready bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unready = unready
}

func (w *fakeWorker) setModel(model string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model = model
}

func (w *fakeWorker) Readyz(context.Context, providers.WorkerTarget) (bool, error) {
	w.count("readyz")
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.unready, nil
}

func (w *fakeWorker) Models(context.Context, providers.WorkerTarget) ([]string, error) {
	w.count("models")
	if w.onModels != nil {
		w.onModels()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		return nil, &providers.Error{Kind: providers.KindUnreachable, Op: "worker.models", Message: "connection refused"}
	}
	return []string{cmp.Or(w.model, "acme/small")}, nil
}

func (w *fakeWorker) Complete(context.Context, providers.WorkerTarget, string) error { return nil }

func (w *fakeWorker) Info(context.Context, providers.WorkerTarget) (providers.WorkerInfo, error) {
	w.count("info")
	return providers.WorkerInfo{Version: "1", Checksum: w.checksum}, nil
}
