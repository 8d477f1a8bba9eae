package maas_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	id       = "abc4ef"
	apiKey   = "consumerQ1:tokenQ2:signatureQ3"
	password = `p"w&'<x> Q4`
)

// stub is a hand-written region: it counts what reaches it.
type stub struct {
	*httptest.Server
	requests atomic.Int32
}

func newStub(t *testing.T, h http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// answer is a handler that always says the same.
func answer(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("MAAS-trace-id", "trace-77")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func open(t *testing.T, base string, opts ...maas.Options) providers.MAAS {
	t.Helper()
	var o maas.Opener
	if len(opts) > 0 {
		o.Options = opts[0]
	}
	m, err := o.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: base + "/MAAS", APIKey: providers.NewSecret(apiKey)})
	require.NoError(t, err)
	return m
}

// machineJSON is a small machine object.
func machineJSON(systemID string, status providers.MAASStatus) string {
	return fmt.Sprintf(`{"system_id":%q,"status":%d,"hostname":"n1","resource_uri":"/MAAS/api/2.0/machines/%s/"}`, systemID, status, systemID)
}

type operation struct {
	name string
	run  func(context.Context, providers.MAAS) error
}

func newMachine() providers.MAASCreate {
	return providers.MAASCreate{
		Hostname: "n1", Architecture: "amd64/generic", MACs: []string{"3C-EC-EF-00-00-01"},
		PowerType: "redfish", PowerAddress: "10.0.0.1", PowerUser: "root", PowerPassword: providers.NewSecret(password),
	}
}

// mutations are all operations on one machine that change something.
func mutations(systemID string) []operation {
	return []operation{
		{"commission", func(ctx context.Context, m providers.MAAS) error {
			_, err := m.Commission(ctx, systemID, providers.MAASCommission{})
			return err
		}},
		{"override", func(ctx context.Context, m providers.MAAS) error { return m.OverrideFailedTesting(ctx, systemID, "ok") }},
		{"boot disk", func(ctx context.Context, m providers.MAAS) error { return m.SetBootDisk(ctx, systemID, 3) }},
		{"layout", func(ctx context.Context, m providers.MAAS) error { return m.SetStorageLayout(ctx, systemID, "flat", 3) }},
		{"link", func(ctx context.Context, m providers.MAAS) error { return m.LinkSubnet(ctx, systemID, 3, 4, "auto") }},
		{"link static", func(ctx context.Context, m providers.MAAS) error {
			return m.LinkStatic(ctx, systemID, 3, 4, "10.1.2.3")
		}},
		{"unlink", func(ctx context.Context, m providers.MAAS) error { return m.UnlinkSubnet(ctx, systemID, 3, 5) }},
		{"update interface", func(ctx context.Context, m providers.MAAS) error {
			return m.UpdateInterface(ctx, systemID, 3, 9000, []string{"roce"})
		}},
		{"allocate", func(ctx context.Context, m providers.MAAS) error {
			_, err := m.Allocate(ctx, systemID, "slipway", "c")
			return err
		}},
		{"annotate", func(ctx context.Context, m providers.MAAS) error {
			return m.SetWorkloadAnnotations(ctx, systemID, map[string]string{"slipway": "1"})
		}},
		{"deploy", func(ctx context.Context, m providers.MAAS) error {
			_, err := m.Deploy(ctx, systemID, providers.MAASDeploy{DistroSeries: "jammy"})
			return err
		}},
		{"abort", func(ctx context.Context, m providers.MAAS) error { return m.Abort(ctx, systemID, "c") }},
		{"release", func(ctx context.Context, m providers.MAAS) error {
			return m.Release(ctx, systemID, providers.MAASRelease{})
		}},
		{"power on", func(ctx context.Context, m providers.MAAS) error { return m.PowerOn(ctx, systemID) }},
		{"power off", func(ctx context.Context, m providers.MAAS) error { return m.PowerOff(ctx, systemID, true) }},
		{"hardware sync", func(ctx context.Context, m providers.MAAS) error { return m.SetHardwareSync(ctx, systemID, true) }},
		{"delete", func(ctx context.Context, m providers.MAAS) error { return m.DeleteMachine(ctx, systemID) }},
	}
}

// create is the one mutation without a machine.
var create = operation{"create", func(ctx context.Context, m providers.MAAS) error {
	_, err := m.CreateMachine(ctx, newMachine())
	return err
}}

// reads are all operations on one machine that change nothing.
func reads(systemID string) []operation {
	return []operation{
		{"machine", func(ctx context.Context, m providers.MAAS) error { _, err := m.Machine(ctx, systemID); return err }},
		{"block devices", func(ctx context.Context, m providers.MAAS) error { _, err := m.BlockDevices(ctx, systemID); return err }},
		{"interfaces", func(ctx context.Context, m providers.MAAS) error { _, err := m.Interfaces(ctx, systemID); return err }},
		{"query power", func(ctx context.Context, m providers.MAAS) error { _, err := m.QueryPower(ctx, systemID); return err }},
		{"token", func(ctx context.Context, m providers.MAAS) error { _, err := m.MachineToken(ctx, systemID); return err }},
		{"events", func(ctx context.Context, m providers.MAAS) error {
			_, err := m.Events(ctx, systemID, "INFO", 10)
			return err
		}},
		{"results", func(ctx context.Context, m providers.MAAS) error {
			_, err := m.Results(ctx, systemID, "testing")
			return err
		}},
	}
}

// regionReads are the reads without a machine.
var regionReads = []operation{
	{"probe", func(ctx context.Context, m providers.MAAS) error { _, err := m.Probe(ctx); return err }},
	{"subnets", func(ctx context.Context, m providers.MAAS) error { _, err := m.Subnets(ctx); return err }},
	{"find by mac", func(ctx context.Context, m providers.MAAS) error {
		_, err := m.FindMachines(ctx, providers.MAASQuery{MACs: []string{"3c:ec:ef:00:00:01"}})
		return err
	}},
	{"find by serial", func(ctx context.Context, m providers.MAAS) error {
		_, err := m.FindMachines(ctx, providers.MAASQuery{Serial: "S1"})
		return err
	}},
}

func allMutations() []operation { return append(mutations(id), create) }
func allReads() []operation     { return append(reads(id), regionReads...) }

// within is a context that ends a test that would hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(20*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// requireKind fails with the whole error, cause included.
func requireKind(t *testing.T, err error, want providers.Kind) *providers.Error {
	t.Helper()
	var pe *providers.Error
	require.ErrorAs(t, err, &pe)
	require.Equal(t, want, pe.Kind, "%v (cause: %v)", err, pe.Err)
	return pe
}

// lostKind is what a lost answer means for op.
func lostKind(op operation) providers.Kind {
	if slices.ContainsFunc(allMutations(), func(m operation) bool { return m.name == op.name }) {
		return providers.KindUncertain
	}
	return providers.KindUnreachable
}
