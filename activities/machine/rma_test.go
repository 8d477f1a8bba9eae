package machine_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

const rmaSerial = "RMA-1"

// certify signs a certificate of the node: clean, or with a disk that nobody erased.
func (w *world) certify(node db.Node, serial string, clean bool) string {
	w.t.Helper()
	vault, err := secrets.Open(w.t.Context(), w.store, secrets.Keeper{KeyFile: filepath.Join(w.dir, "key")}, secrets.Options{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, vault.Close()) })
	row, err := (&signing.Ring{Store: w.store, Secrets: vault}).Certify(w.t.Context(), evidence.Certificate{
		Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname, Serial: serial},
		Run:     evidence.Run{ID: db.NewID("job"), Kind: "decommission", Mode: string(lifecycle.ModeReimage), StartedAt: time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond), EndedAt: time.Now().UTC().Truncate(time.Microsecond)},
		Steps:   []lifecycle.StepResult{{Name: "gpu.scrub/disks", OK: true}},
		Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Serial: "D1", Method: lifecycle.SanitizePurge, Tool: "nvme", Verified: clean}},
	})
	require.NoError(w.t, err)
	return row.ID
}

// TestReturnMachine_NeedsTheCertificate: only the last certificate of this very machine counts, or
// an operator who accepts the risk. The audit log says which of them it was. joined stores that a
// run had the machine join a cluster at a time.
func (w *world) joined(at time.Time) {
	w.t.Helper()
	_, err := w.store.DBTX().Exec(w.t.Context(), "INSERT INTO clusters (ref, spec) VALUES ('c-1', '{}')")
	require.NoError(w.t, err)
	_, err = w.store.DBTX().Exec(w.t.Context(), `INSERT INTO machine_clusters (machine_id, cluster_ref, node_name, system_uuid, joined_at)
		VALUES ('m-1', 'c-1', 'n', '00000000-0000-0000-0000-000000000001', $1)`, at)
	require.NoError(w.t, err)
}

func TestReturnMachine_NeedsTheCertificate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		certify func(*world, db.Node) string // returns the certificate that counts
		risk    bool
		class   lifecycle.FailureClass
	}{
		"none":               {func(*world, db.Node) string { return "" }, false, lifecycle.FailScrubUnverified},
		"none, at a risk":    {func(*world, db.Node) string { return "" }, true, ""},
		"clean":              {func(w *world, n db.Node) string { return w.certify(n, rmaSerial, true) }, false, ""},
		"of another machine": {func(w *world, n db.Node) string { w.certify(n, "OTHER", true); return "" }, false, lifecycle.FailScrubUnverified},
		"not verified":       {func(w *world, n db.Node) string { w.certify(n, rmaSerial, false); return "" }, false, lifecycle.FailScrubUnverified},
		"clean, and then not": {func(w *world, n db.Node) string {
			w.certify(n, rmaSerial, true)
			w.certify(n, rmaSerial, false)
			return ""
		}, false, lifecycle.FailScrubUnverified},
		"clean, and then in a cluster": {func(w *world, n db.Node) string {
			w.certify(n, rmaSerial, true)
			w.joined(time.Now().Add(time.Minute))
			return ""
		}, false, lifecycle.FailScrubUnverified},
		"in a cluster, and then clean": {func(w *world, n db.Node) string {
			w.joined(time.Now().Add(-time.Hour))
			return w.certify(n, rmaSerial, true)
		}, false, ""},
		"another machine, at risk":  {nil, true, lifecycle.FailOtherMachine},
		"another machine, no risks": {nil, false, lifecycle.FailOtherMachine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "ssh")
			node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(*w.machine().SiteID))
			require.NoError(t, w.store.SetNodeMachine(t.Context(), node.ID, db.NodeMachine{Serial: rmaSerial}))
			bmc := w.linked(node)
			bmc.is = bmcact.MachineRecord{Serials: []string{rmaSerial}}
			want := ""
			if tc.certify == nil {
				bmc.is = bmcact.MachineRecord{Serials: []string{"SWAPPED"}}
			} else {
				want = tc.certify(w, node)
			}
			w.risk = tc.risk
			in := w.step(runplan.Step{Name: "return", RMA: &runplan.RMAAction{Ticket: "T-7"}})
			_, err := w.acts.ReturnMachine(t.Context(), in)
			var raw []byte
			row := w.store.DBTX().QueryRow(t.Context(), "SELECT metadata FROM audit_log WHERE name = 'return_machine' AND resource_id = 'm-1'")
			if tc.class != "" {
				require.Equal(t, tc.class, classOf(err), "%v", err)
				require.Error(t, row.Scan(&raw), "nothing is recorded")
				return
			}
			require.NoError(t, err)
			require.NoError(t, row.Scan(&raw))
			var meta map[string]any
			require.NoError(t, json.Unmarshal(raw, &meta))
			require.Equal(t, []any{"T-7", rmaSerial, tc.risk}, []any{meta["ticket"], meta["serial"], meta["accept_risk"]})
			if want != "" {
				require.Equal(t, want, meta["certificate_id"])
			} else {
				require.NotEmpty(t, meta["unproven"])
			}
			kept, err := evidencedb.CertificatesOfNode(t.Context(), w.store, node.ID)
			require.NoError(t, err)
			require.Equal(t, want != "", len(kept) > 0)
			require.Equal(t, providers.BootNone, bmc.device)
		})
	}
}
